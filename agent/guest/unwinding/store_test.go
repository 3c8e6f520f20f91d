package unwinding

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/unwind"
)

// A fakeKernel holds what it is given.
type fakeKernel struct {
	wants     map[uint32]bpf.UnwindWant
	processes map[uint32]bpf.UnwoundProcess
	tables    map[uint16]uint32 // generation by slot
	set       int               // tables that were set
	full      error             // answer to what is set
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{wants: map[uint32]bpf.UnwindWant{}, processes: map[uint32]bpf.UnwoundProcess{},
		tables: map[uint16]uint32{}}
}

func (k *fakeKernel) asked(left map[uint32]struct{}) bool {
	for pid := range k.wants {
		if _, ok := left[pid]; !ok {
			return true
		}
	}
	return false
}

func (k *fakeKernel) requests() map[uint32]bpf.UnwindWant { return k.wants }
func (k *fakeKernel) takeOut(pid uint32)                  { delete(k.wants, pid) }
func (k *fakeKernel) dropProcess(pid uint32)              { delete(k.processes, pid) }
func (k *fakeKernel) dropTable(slot uint16)               { delete(k.tables, slot) }

func (k *fakeKernel) setProcess(pid uint32, record *bpf.UnwoundProcess) error {
	if k.full == nil {
		k.processes[pid] = *record
	}
	return k.full
}

func (k *fakeKernel) eachProcess(f func(pid uint32, record *bpf.UnwoundProcess)) {
	for pid, record := range k.processes {
		f(pid, &record)
	}
}

func (k *fakeKernel) setTable(slot uint16, generation uint32, rows []unwind.Row) error {
	if k.full == nil {
		k.tables[slot] = generation
		k.set++
	}
	return k.full
}

// A fakeContent is a file's.
type fakeContent struct {
	id    uint64
	rows  int
	err   error
	built *int
}

func (c fakeContent) Sum() unwind.Sum { return unwind.Sum{c.id} }
func (c fakeContent) Segments() elffile.Segments {
	return elffile.Segments{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: 0x1000, Memsz: 0x1000}}
}
func (c fakeContent) Table(context.Context) (*unwind.Table, error) {
	if c.built != nil {
		*c.built++
	}
	return &unwind.Table{Rows: make([]unwind.Row, c.rows)}, c.err
}

func testStore() (*store, *fakeKernel, map[Loss]int) {
	k, losses := newFakeKernel(), map[Loss]int{}
	s := newStore(k, func(l Loss) { losses[l]++ })
	return &s, k, losses
}

func (s *store) mustGet(t *testing.T, c content) *table {
	t.Helper()
	table, err := s.get(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// Files of the same content share a table.
func TestStoreShares(t *testing.T) {
	s, k, _ := testStore()
	a := s.mustGet(t, fakeContent{id: 1, rows: 10})
	if b := s.mustGet(t, fakeContent{id: 1, rows: 10}); a != b || k.set != 1 {
		t.Errorf("tables %p and %p, %d were set", a, b, k.set)
	}
	if c := s.mustGet(t, fakeContent{id: 2, rows: 10}); c.slot == a.slot || c.generation == a.generation || k.set != 2 {
		t.Errorf("another content: slot %d, generation %d", c.slot, c.generation)
	}
	s.setFile(fileKey{inode: 1}, a)
	s.setFile(fileKey{}, a) // not a file
	if s.ofFile(fileKey{inode: 1}) != a || s.ofFile(fileKey{inode: 2}) != nil || s.ofFile(fileKey{}) != nil {
		t.Error("tables of files are mixed up")
	}
}

// Tables in use are not driven out by others; spare ones are, the oldest first.
func TestStoreRoom(t *testing.T) {
	s, k, losses := testStore()
	const rows = 1 << 20 // 8 MB
	built := 0
	var tables []*table
	for id := uint64(1); ; id++ {
		one, err := s.get(t.Context(), fakeContent{id: id, rows: rows, built: &built})
		if err != nil {
			if !errors.Is(err, errFull) {
				t.Fatal(err)
			}
			break
		}
		tables = append(tables, one)
	}
	if s.bytes > maxTableBytes || s.bytes < maxTableBytes/2 || len(k.tables) != len(tables) {
		t.Fatalf("%d bytes in %d tables, %d in the kernel", s.bytes, len(tables), len(k.tables))
	}
	before := built
	refused := fakeContent{id: uint64(len(tables) + 1), rows: rows, built: &built}
	if _, err := s.get(t.Context(), refused); !errors.Is(err, errFull) || built != before {
		t.Errorf("asked again: %v; built %d times more", err, built-before)
	}
	oldest := tables[2]
	oldest.used = time.Now().Add(-2 * spareTable)
	tables[1].used = time.Now().Add(-3 * spareTable / 2)
	if one := s.mustGet(t, refused); one.slot != oldest.slot || one.generation == oldest.generation {
		t.Errorf("slot %d, generation %d in place of %d, %d", one.slot, one.generation, oldest.slot, oldest.generation)
	}
	if s.has(oldest) || !s.has(tables[1]) || losses[LossEvicted] != 1 {
		t.Errorf("the oldest is there: %v, the next: %v, lost %v", s.has(oldest), s.has(tables[1]), losses)
	}
	s.use(bpf.UnwindMapping{Table: oldest.slot, Generation: oldest.generation}) // a record that was not renewed names it
	s.use(bpf.UnwindMapping{Table: tables[1].slot, Generation: tables[1].generation})
	if time.Since(tables[1].used) > time.Minute {
		t.Error("a table that a process has is not used")
	}
}

func TestStoreSlots(t *testing.T) {
	s, k, _ := testStore()
	for id := range uint64(bpf.MaxUnwindTables) {
		s.mustGet(t, fakeContent{id: id, rows: 1})
	}
	if _, err := s.get(t.Context(), fakeContent{id: 1 << 20, rows: 1}); !errors.Is(err, errFull) {
		t.Errorf("one more: %v", err)
	}
	for _, one := range s.bySum {
		if one.slot%2 == 0 {
			one.used = time.Now().Add(-2 * idleTable)
		}
	}
	s.dropIdle()
	if want := bpf.MaxUnwindTables / 2; len(s.bySum) != want || len(k.tables) != want ||
		s.bytes != want*2*bpf.UnwindBlockBytes {
		t.Errorf("%d tables of %d bytes are left, %d in the kernel", len(s.bySum), s.bytes, len(k.tables))
	}
}

// Content without a table is not read again and again.
func TestStoreFails(t *testing.T) {
	s, k, _ := testStore()
	for i, failure := range []error{unwind.ErrNone, unwind.ErrTooLarge, context.DeadlineExceeded, fmt.Errorf("malformed")} {
		built := 0
		c := fakeContent{id: uint64(i), err: failure, built: &built}
		for range 3 {
			if _, err := s.get(t.Context(), c); !errors.Is(err, failure) || built != 1 {
				t.Errorf("%v: %v, built %d times", failure, err, built)
			}
		}
	}
	k.full = unix.ENOMEM
	for range 2 { // but another time the kernel may have memory
		if _, err := s.get(t.Context(), fakeContent{id: 9, rows: 1}); !errors.Is(err, errKernel) ||
			!errors.Is(err, unix.ENOMEM) || s.bytes != 0 {
			t.Errorf("%v, %d bytes", err, s.bytes)
		}
	}
	k.full = nil
	s.mustGet(t, fakeContent{id: 9, rows: 1})

	ended, end := context.WithCancel(t.Context())
	end()
	_, _ = s.get(ended, fakeContent{id: 10, err: context.Canceled})
	s.mustGet(t, fakeContent{id: 10, rows: 1})
}
