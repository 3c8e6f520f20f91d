package unwinding

import (
	"context"
	"errors"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/unwind"
)

const (
	// maxTableBytes bounds the kernel memory of all tables. 500 libraries of Debian take 30 MB.
	maxTableBytes = 56 << 20
	// maxBuild bounds what one table takes to be made; the largest known one, Chromium's, takes 1 s.
	maxBuild = 5 * time.Second
	// idleTable is for how long a table is kept that no process has.
	idleTable = 10 * time.Minute
)

// A table is one in the kernel.
type table struct {
	sum        unwind.Sum
	slot       uint32
	generation uint32
	segments   elffile.Segments
	base       uint64 // address of the file at which its offsets begin
	bytes      int
	used       time.Time // when a process last had it
}

// A store has the tables, by the content of files. It belongs to one goroutine.
type store struct {
	bySum      map[unwind.Sum]*table
	bySlot     [bpf.MaxUnwindTables]*table
	files      map[fileKey]*table
	bytes      int
	generation uint32
	built      uint64
	lost       func(Loss)
	put        func(slot uint32, m *ebpf.Map) error
	remove     func(slot any) error
}

func newStore(lost func(Loss), put func(uint32, *ebpf.Map) error, remove func(any) error) store {
	return store{bySum: map[unwind.Sum]*table{}, files: map[fileKey]*table{}, lost: lost, put: put, remove: remove}
}

// errKernel: the kernel did not take the table.
var errKernel = errors.New("set unwind table")

// maxFiles bounds the files whose tables are known without a look at their content. Of more, all are
// forgotten.
const maxFiles = 1 << 13

// ofFile returns the table of a file, nil if it has none yet.
func (s *store) ofFile(key fileKey) *table {
	if t := s.files[key]; t != nil && s.has(t) {
		return t
	}
	return nil
}

// setFile notes which table a file has.
func (s *store) setFile(key fileKey, t *table) {
	if key == (fileKey{}) {
		return
	}
	if len(s.files) >= maxFiles {
		clear(s.files)
	}
	s.files[key] = t
}

// has reports whether a table has not made room for another one.
func (s *store) has(t *table) bool { return s.bySlot[t.slot] == t }

// get returns the table of a file's content, and makes it if it is not there.
func (s *store) get(ctx context.Context, frames *unwind.Frames) (*table, error) {
	sum := frames.Sum()
	if t := s.bySum[sum]; t != nil {
		t.used = time.Now()
		return t, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxBuild)
	defer cancel()
	made, err := frames.Table(ctx)
	if err != nil {
		return nil, err
	}
	bytes := bpf.UnwindBlocks(len(made.Rows)) * bpf.UnwindBlockBytes
	slot := s.room(bytes)
	s.generation++
	m, err := bpf.NewUnwindTable(s.generation, len(made.Rows), func(i int) uint64 {
		return uint64(made.Rows[i].Rule)<<32 | uint64(made.Rows[i].Offset)
	})
	if err != nil {
		return nil, errors.Join(errKernel, err)
	}
	defer m.Close()
	if err := s.put(slot, m); err != nil {
		return nil, errors.Join(errKernel, err)
	}
	t := &table{
		sum: sum, slot: slot, generation: s.generation, segments: frames.Segments(), base: made.Base, bytes: bytes,
		used: time.Now(),
	}
	s.bySum[sum], s.bySlot[slot] = t, t
	s.bytes += bytes
	s.built++
	return t, nil
}

// room returns a free slot. If there is none, or too little memory, tables make room that were used
// longest ago. Walks notice by the generation of what is in the slot then.
func (s *store) room(bytes int) (slot uint32) {
	for {
		var oldest *table
		free := -1
		for i, t := range s.bySlot {
			switch {
			case t == nil && free < 0:
				free = i
			case t != nil && (oldest == nil || t.used.Before(oldest.used)):
				oldest = t
			}
		}
		if free >= 0 && (s.bytes+bytes <= maxTableBytes || oldest == nil) { // one table is less than that
			return uint32(free)
		}
		s.drop(oldest)
		s.lost(LossEvicted)
	}
}

func (s *store) drop(t *table) {
	delete(s.bySum, t.sum)
	s.bySlot[t.slot] = nil
	s.bytes -= t.bytes
	_ = s.remove(t.slot)
}

// use notes that a process has a table.
func (s *store) use(slot, generation uint32) {
	if t := s.bySlot[slot%bpf.MaxUnwindTables]; t != nil && t.generation == generation {
		t.used = time.Now()
	}
}

// dropIdle drops tables that no process has had for a while.
func (s *store) dropIdle() {
	for _, t := range s.bySum {
		if time.Since(t.used) > idleTable {
			s.drop(t)
		}
	}
}
