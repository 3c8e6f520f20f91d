//go:build linux && amd64

package bpf

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// zHeap is where ZGC has its heap: offsets in it are the lower bits of addresses.
const zHeap = 1 << 42

// A movingLoom is a fakeLoom of ZGC, which has moved objects and has not updated references since.
type movingLoom struct {
	*fakeLoom
	page    [2]uint64 // page of each generation: what is known of the objects of the heap's first page
	entries uint32    // entries in each page's table
	old     uint64    // colour of references that may lead to where an object was
}

const (
	forwardStart, forwardShift, forwardLength, forwardEntries = 8, 24, 32, 48 // those of no build
	heapStart                                                 = 2 << 20       // offset of the page
)

// newMovingLoom is newLoom for coloured references, or for those of the ZGC before, whose colours
// are bits of the address.
func newMovingLoom(t testing.TB, vm *fakeVM, references string, entries uint32) *movingLoom {
	t.Helper()
	l := &movingLoom{fakeLoom: vm.newLoom(t, references), entries: entries}
	const size = 256 << 10
	if references == "wide" { // the heap is mapped for each colour
		l.old = 2 * zHeap
		l.heap = mapHeap(t, zHeap, size, l.old)
	} else {
		l.old = 1 << 12
		l.heap = mapHeap(t, zHeap, size)
	}
	l.top = l.heap.base
	vm.HeapLow, vm.HeapHigh = zHeap, 2*zHeap
	vm.BadColours = vm.allocate(8)
	if references == "wide" {
		vm.HeapHigh, vm.AddressMask = 8*zHeap, zHeap-1
	}
	vm.meta.put64(vm.BadColours, l.old)
	vm.ForwardGranule = 21
	vm.ForwardStart, vm.ForwardShift, vm.ForwardLength, vm.ForwardEntries = forwardStart, forwardShift, forwardLength,
		forwardEntries
	for i := range vm.ForwardTables {
		vm.ForwardTables[i] = vm.allocate(16)
		l.page[i] = vm.allocate(forwardEntries + 8*uint64(entries))
		vm.meta.put64(l.page[i]+forwardStart, heapStart)
		vm.meta.put64(l.page[i]+forwardShift, 3)
		vm.meta.put64(l.page[i]+forwardLength, uint64(entries))
		vm.meta.put64(vm.ForwardTables[i]+8*(heapStart>>21), l.page[i])
	}
	return l
}

// mapHeap maps the page of the heap of ZGC, in each of its views. The result is the first.
func mapHeap(t testing.TB, view uint64, size int, others ...uint64) region {
	t.Helper()
	fd, err := unix.MemfdCreate("heap", 0)
	if err != nil {
		t.Fatalf("make a heap: %v", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatalf("make a heap: %v", err)
	}
	var first region
	for _, v := range append([]uint64{view}, others...) {
		mem, err := unix.MmapPtr(fd, 0, unsafe.Add(nil, v+heapStart), uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_POPULATE|unix.MAP_FIXED_NOREPLACE)
		if err != nil {
			t.Fatalf("map the heap: %v", err)
		}
		t.Cleanup(func() { _ = unix.MunmapPtr(mem, uintptr(size)) })
		if v == view {
			first = region{unsafe.Slice((*byte)(mem), size), uint64(uintptr(mem))}
		}
	}
	return first
}

// stale puts a reference to where an object was.
func (l *movingLoom) stale(at, object uint64) {
	if l.references == "wide" {
		l.heap.put64(at, object^zHeap|l.old)
		return
	}
	l.heap.put64(at, object<<13|l.old)
}

// zHash is ZHash::uint32_to_uint32.
func zHash(key uint32) uint32 {
	key = ^key + key<<15
	key ^= key >> 12
	key += key << 2
	key ^= key >> 4
	key *= 2057
	return key ^ key>>16
}

// moved enters that an object of a generation was moved.
func (l *movingLoom) moved(generation int, from, to uint64) {
	index := (from - zHeap - heapStart) >> 3
	for slot := zHash(uint32(index)); ; slot++ {
		at := l.page[generation] + forwardEntries + 8*uint64(slot&(l.entries-1))
		if l.meta.word(at) == 0 {
			l.meta.put64(at, index<<46|(to-zHeap)<<1|1)
			return
		}
	}
}

// move copies an object of that size, enters it, and wipes it out where it was.
func (l *movingLoom) move(generation int, from, size uint64) (to uint64) {
	to = l.object(size)
	l.heap.put(to, l.heap.at(from)[:size])
	clear(l.heap.at(from)[:size])
	l.moved(generation, from, to)
	return to
}

const fakeChunkSize = 64 + 8*512 // bytes of a chunk of fakeLoom

// What ZGC has moved of a virtual thread that has yielded twice: its parent chunk has 2 frames, its
// newest 1, and its stack 2.
var movedStacks = []struct {
	name  string
	found int // frames; 0 for all
	move  func(l *movingLoom, m *mounted, parent uint64)
}{
	{"Continuation, the chunk stayed", 0, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		l.moveContinuation(0, m)
	}},
	{"chunk and Continuation", 0, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		l.moveContinuation(0, m)
		l.move(0, parent, fakeChunkSize)
	}},
	{"chunk and Continuation, of two generations", 0, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		l.moveContinuation(1, m)
		l.move(0, parent, fakeChunkSize)
	}},
	{"chunk", 0, func(l *movingLoom, m *mounted, parent uint64) { l.move(1, parent, fakeChunkSize) }},
	{"chunk, and another thread's is in its place", 0, func(l *movingLoom, m *mounted, parent uint64) {
		copied := append([]byte(nil), l.heap.at(parent)[:fakeChunkSize]...)
		l.move(0, parent, fakeChunkSize)
		l.heap.put(parent, copied)
		l.stale(parent+uint64(l.ChunkCont), m.continuation+8)
	}},
	{"newest chunk", 0, func(l *movingLoom, m *mounted, _ uint64) {
		l.stale(m.continuation+uint64(l.ContTail), m.chunk)
		l.move(0, m.chunk, fakeChunkSize)
	}},
	{"other objects have entries as well", 0, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		for i := range uint64(l.entries/2 - 2) {
			l.moved(0, zHeap+heapStart+128<<10+64*i, parent)
		}
		l.moveContinuation(0, m)
		l.move(0, parent, fakeChunkSize)
	}},
	{"chunk and Continuation, and the entry leads to where it was", 0, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		before := m.continuation
		l.moveContinuation(0, m)
		l.heap.put(before, l.heap.at(m.continuation)[:64])
		m.mem.put64(m.entry+uint64(l.EntryCont), before)
		l.move(0, parent, fakeChunkSize)
	}},
	{"nothing: another thread's chunk was here", 3, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation+8)
	}},
	{"another Continuation, to another place", 3, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation+8)
		l.moved(0, m.continuation+8, m.continuation+16)
	}},
	{"Continuation, as nothing says", 3, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		l.moveContinuation(0, m)
		l.ForwardTables = [2]uint64{}
	}},
	{"Continuation, by a page that cannot be read", 3, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		l.moveContinuation(0, m)
		l.meta.put64(l.ForwardTables[0]+8*(heapStart>>21), poison)
	}},
	{"Continuation, its entry too far away", 3, func(l *movingLoom, m *mounted, parent uint64) {
		l.stale(parent+uint64(l.ChunkCont), m.continuation)
		for i := range uint64(l.entries) {
			l.meta.put64(l.page[0]+forwardEntries+8*i, 1)
		}
		l.moveContinuation(1, m)
	}},
	{"chunk, to outside of the heap", 3, func(l *movingLoom, _ *mounted,
		parent uint64) {
		l.moved(0, parent, zHeap+100<<20)
	}},
}

// moveContinuation moves it. The VM has updated what the entry refers to.
func (l *movingLoom) moveContinuation(generation int, m *mounted) {
	m.continuation = l.move(generation, m.continuation, 64)
	m.mem.put64(m.entry+uint64(l.EntryCont), m.continuation)
	l.reference(m.chunk+uint64(l.ChunkCont), m.continuation)
}

// Chunks that ZGC has moved, or whose Continuation it has.
func TestKernelMoved(t *testing.T) {
	w := newWalker(t)
	for _, references := range []string{"coloured", "wide"} {
		for _, c := range movedStacks {
			t.Run(references+"/"+c.name, func(t *testing.T) {
				l := newMovingLoom(t, newFakeVM(t, builds[2]), references, 64)
				m := l.onCarrier(t)
				m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40).compiled(l.typical(64), 0x48) })
				parent := m.chunk
				m.yield(func(s *fakeStack) { s.compiled(l.typical(64), 0x50) })
				l.stale(m.chunk+uint64(l.ChunkParent), parent)
				c.move(l, m, parent)
				w.attach(t, l.fakeVM)
				s := m.thaw(0).compiled(l.typical(64), 0x60).compiled(l.typical(48), 0x68)
				end := EndRoot
				if c.found > 0 {
					s.innermost(c.found)
					end = EndHeap
				}
				s.check(t, w, s.request(), end)
			})
		}
	}
}

// Chunks whose references lead around in the tables: the walk ends when it has read as much as it
// may.
func TestKernelMovedLoop(t *testing.T) {
	w := newWalker(t)
	l := newMovingLoom(t, newFakeVM(t, builds[2]), "coloured", 64)
	m := l.onCarrier(t)
	m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) })
	l.stale(m.chunk+uint64(l.ChunkCont), m.continuation)
	l.moveContinuation(1, m)
	l.stale(m.chunk+uint64(l.ChunkCont), m.continuation-8)
	l.moved(1, m.continuation-8, m.continuation)
	before := l.object(8)
	l.stale(m.chunk+uint64(l.ChunkParent), before)
	l.moved(1, before, m.chunk)
	w.attach(t, l.fakeVM)
	s := m.thaw(0).compiled(l.typical(64), 0x50)
	const lookupBudget, forwardReads = 8192, 20 // LOOKUP_BUDGET, FORWARD_READS
	got := w.walk(t, s.request())               // the budget may end for a chunk or for a table
	if (got.End != EndScan && got.End != EndHeap) || len(got.User) > lookupBudget/forwardReads+1 {
		t.Errorf("%d frames, ended by %v", len(got.User), got.End)
	}
}
