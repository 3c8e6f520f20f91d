package unwinding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/unwind"
)

const (
	// maxTableBytes bounds the kernel memory of all tables. 500 libraries of Debian take 30 MB.
	maxTableBytes = 56 << 20
	// maxBuild bounds what one table takes to be made; the largest known one, Chromium's, takes 1 s.
	maxBuild = 3 * time.Second
	// idleTable is for how long a table is kept that no process has.
	idleTable = 10 * time.Minute
	// spareTable is the same for a table in whose place another one is wanted.
	spareTable = 2 * sweepInterval
)

// A table is one in the kernel.
type table struct {
	sum        unwind.Sum
	slot       uint16
	generation uint32
	segments   elffile.Segments
	base       uint64         // address of the file at which its offsets begin
	framed     []unwind.Range // code in which return addresses need no search
	bytes      int
	used       time.Time // when a process last had it
}

// A store has the tables, by the content of files. It belongs to one goroutine.
type store struct {
	kernel     kernel
	bySum      map[unwind.Sum]*table
	bySlot     [bpf.MaxUnwindTables]*table
	files      map[fileKey]*table
	bytes      int
	generation uint32
	refused    map[unwind.Sum]int   // bytes of tables for which there was no room
	failed     map[unwind.Sum]error // content of which no table can be made
	lost       func(Loss)
}

func newStore(k kernel, lost func(Loss)) store {
	return store{kernel: k, bySum: map[unwind.Sum]*table{}, files: map[fileKey]*table{}, refused: map[unwind.Sum]int{},
		failed: map[unwind.Sum]error{}, lost: lost}
}

var (
	errKernel = errors.New("the kernel refused the table")
	errFull   = errors.New("no room for another table")
)

// maxRemembered bounds the files whose tables are known without a look at their content, and the
// contents that have none. Of more, all are forgotten.
const maxRemembered = 1 << 13

func remember[K comparable, V any](m map[K]V, key K, value V) {
	if len(m) >= maxRemembered {
		clear(m)
	}
	m[key] = value
}

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
	remember(s.files, key, t)
}

// has reports whether a table has not made room for another one.
func (s *store) has(t *table) bool { return s.bySlot[t.slot] == t }

// Content is what a table is made of: unwind.Frames, or a test's.
type content interface {
	Sum() unwind.Sum
	Segments() elffile.Segments
	Table(context.Context) (*unwind.Table, error)
}

// get returns the table of a file's content, and makes it if it is not there. It is errFull if other
// tables that processes have leave no room.
func (s *store) get(ctx context.Context, frames content) (*table, error) {
	sum := frames.Sum()
	if t := s.bySum[sum]; t != nil {
		t.used = time.Now()
		return t, nil
	}
	if err := s.failed[sum]; err != nil {
		return nil, err
	}
	least := s.refused[sum] // known before the table is built again
	if _, ok := s.room(max(least, 2*bpf.UnwindBlockBytes)); !ok {
		return nil, errFull
	}
	building, cancel := context.WithTimeout(ctx, maxBuild)
	defer cancel()
	made, err := frames.Table(building)
	if err != nil {
		if ctx.Err() == nil { // it was not the agent that ended
			remember(s.failed, sum, err)
		}
		return nil, err
	}
	bytes := bpf.UnwindBlocks(len(made.Rows)) * bpf.UnwindBlockBytes
	slot, ok := s.room(bytes)
	if !ok {
		remember(s.refused, sum, bytes)
		return nil, errFull
	}
	delete(s.refused, sum)
	s.generation++
	if err := s.kernel.setTable(slot, s.generation, made.Rows); err != nil {
		return nil, fmt.Errorf("%w: %w", errKernel, err)
	}
	t := &table{
		sum: sum, slot: slot, generation: s.generation, segments: frames.Segments(), base: made.Base,
		framed: made.Framed(), bytes: bytes, used: time.Now(),
	}
	s.bySum[sum], s.bySlot[slot] = t, t
	s.bytes += bytes
	return t, nil
}

// room returns a free slot. If there is none, or too little memory, tables make room that no process
// has had for spareTable, the one that was used longest ago first: tables that are in use would
// only drive each other out. Walks notice by the generation of what is in the slot then.
func (s *store) room(bytes int) (slot uint16, ok bool) {
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
		if free >= 0 && s.bytes+bytes <= maxTableBytes {
			return uint16(free), true
		}
		if oldest == nil || time.Since(oldest.used) < spareTable {
			return 0, false
		}
		s.drop(oldest)
		s.lost(LossEvicted)
	}
}

func (s *store) drop(t *table) {
	delete(s.bySum, t.sum)
	s.bySlot[t.slot] = nil
	s.bytes -= t.bytes
	s.kernel.dropTable(t.slot)
}

// tableAt returns the table that a mapping of a record names, nil if that has been dropped.
func (s *store) tableAt(m bpf.UnwindMapping) *table {
	if m.Table >= bpf.MaxUnwindTables {
		return nil
	}
	if t := s.bySlot[m.Table]; t != nil && t.generation == m.Generation {
		return t
	}
	return nil
}

// use notes that a process has the table of a mapping.
func (s *store) use(m bpf.UnwindMapping) {
	if t := s.tableAt(m); t != nil {
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
