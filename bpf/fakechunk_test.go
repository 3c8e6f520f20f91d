//go:build linux && amd64

package bpf

import (
	"cmp"
	"math"
	"testing"
)

// A fakeLoom is what the walker sees of the heap of a VM with virtual threads.
type fakeLoom struct {
	*fakeVM
	heap       region
	top        uint64 // where the next object goes
	klass      uint64 // class of chunks
	enter      *blob  // blob of enterSpecial
	references string // one of the kinds below
}

// referenceKinds are how references, and pointers to classes, are kept in objects.
var referenceKinds = []string{"wide", "narrow", "compact", "coloured"}

// newLoom adds virtual threads to vm, which is to be updated. The offsets are those of no build:
// the walker knows none.
func (vm *fakeVM) newLoom(t testing.TB, references string) *fakeLoom {
	t.Helper()
	l := &fakeLoom{fakeVM: vm, heap: newRegion(t, 256<<10), references: references}
	l.top, l.klass = l.heap.base, vm.meta.base+0x4000
	code := template{frame: 96, prologue: prologueC2(96), epilogue: epilogue17(96)}.assemble(0x100)
	l.enter = vm.newBlob(vm.NameNative, code.bytes, 96/8, code.complete)
	vm.identify(l.enter)
	vm.EnterReturn = vm.allocate(8)

	vm.Flags = vm.Flags&^HotspotColoured | HotspotChunks
	vm.HeapLow, vm.HeapHigh, vm.AddressMask = l.heap.base, l.heap.end(), math.MaxUint64
	vm.OopBase, vm.OopMask, vm.OopShift, vm.OopColourShift = 0, math.MaxUint64, 0, 0
	vm.ChunkKlass, vm.ChunkKlassMask, vm.ChunkKlassAt, vm.ChunkKlassShift = l.klass, math.MaxUint64, 8, 0
	switch references {
	case "narrow":
		vm.OopBase, vm.OopMask, vm.OopShift = l.heap.base-4096, math.MaxUint32, 3
		vm.ChunkKlass, vm.ChunkKlassMask = (l.klass-vm.meta.base)>>3, math.MaxUint32
	case "compact":
		vm.ChunkKlass, vm.ChunkKlassAt, vm.ChunkKlassShift = (l.klass-vm.meta.base)>>10, 0, 42
	case "coloured":
		vm.Flags |= HotspotColoured
	}
	vm.EntryCont, vm.ContTail = 16, 24
	vm.ChunkParent, vm.ChunkCont, vm.ChunkSize, vm.ChunkSp, vm.ChunkBottom, vm.ChunkPc = 16, 24, 32, 36, 40, 48
	vm.ChunkStack = 64
	return l
}

func (l *fakeLoom) object(size uint64) uint64 {
	o := l.top
	l.top += size
	return o
}

// reference puts a reference to an object into another one.
func (l *fakeLoom) reference(at, object uint64) {
	switch {
	case object == 0 && l.references != "coloured":
		l.heap.put64(at, 0)
	case l.references == "narrow":
		l.heap.put32(at, uint32((object-l.OopBase)>>3))
		l.heap.put32(at+4, 0xdead) // the field behind it
	case l.references == "coloured":
		l.heap.put64(at, object<<14|1<<13)
	default:
		l.heap.put64(at, object)
	}
}

// A mounted is a virtual thread on its carrier's stack, from which some of its frames are missing.
type mounted struct {
	*fakeStack
	loom         *fakeLoom
	entry        uint64 // ContinuationEntry
	continuation uint64
	chunk, first uint64     // the newest one, and the oldest
	top          *fakeStack // innermost of the frames on the heap; its registers lead on
}

// mount has s enter a continuation, of which nothing is on the stack yet.
func (l *fakeLoom) mount(s *fakeStack) *mounted {
	s.compiled(l.enter, 0x40)
	l.meta.put64(l.EnterReturn, s.pc)
	m := &mounted{fakeStack: s, loom: l, entry: s.sp, continuation: l.object(64)}
	s.mem.put64(m.entry+uint64(l.EntryCont), m.continuation)
	l.reference(m.continuation+uint64(l.ContTail), 0)
	m.top = &fakeStack{fakeVM: l.fakeVM, mem: l.heap, relative: true, bp: poison, rbx: poison, r13: poison}
	return m
}

// yield has the calls that build makes in a new chunk, below those of older chunks.
func (m *mounted) yield(build func(*fakeStack)) *mounted {
	const words, arguments = 512, 6
	l := m.loom
	c := l.object(uint64(l.ChunkStack) + 8*words)
	l.heap.put64(c, 1)
	switch l.references {
	case "narrow":
		l.heap.put32(c+8, uint32(l.ChunkKlass))
		l.heap.put32(c+12, 0xdead)
	case "compact":
		l.heap.put64(c, l.ChunkKlass<<42|1)
	default:
		l.heap.put64(c+8, l.klass)
	}
	bottom := uint32(words - arguments)
	m.top.sp = c + uint64(l.ChunkStack) + 8*uint64(bottom)
	before := len(m.top.frames)
	if build != nil {
		build(m.top)
	}
	for _, f := range m.top.frames[before:] {
		m.frames = append(m.frames, placedFrame{f.Frame, 0})
	}
	top := *m.top // what the callee pushes, which is not there any more
	top.push(top.pc)
	top.saveBP()

	l.heap.put32(c+uint64(l.ChunkSize), words)
	l.heap.put32(c+uint64(l.ChunkSp), uint32((m.top.sp-c-uint64(l.ChunkStack))/8))
	if l.Flags&HotspotChunkArgsize != 0 {
		bottom = arguments
	}
	l.heap.put32(c+uint64(l.ChunkBottom), bottom)
	l.heap.put64(c+uint64(l.ChunkPc), m.top.pc)
	l.reference(c+uint64(l.ChunkCont), m.continuation)
	l.reference(c+uint64(l.ChunkParent), m.chunk)
	l.reference(m.continuation+uint64(l.ContTail), c)
	m.chunk, m.first = c, cmp.Or(m.first, c)
	return m
}

// thaw returns the stack, where calls are to follow whose outermost one returns to the barrier. It
// takes that many words of arguments.
func (m *mounted) thaw(arguments uint64) *fakeStack {
	m.sp -= 8 * arguments
	m.pc, m.bp = m.ReturnBarrier, poison
	return m.fakeStack
}
