//go:build linux && amd64

package bpf

import "testing"

// Stacks that cannot be walked to their root: what was found until there is right, and the reason
// is given.
var brokenStacks = []struct {
	name  string
	end   WalkEnd
	build func(*fakeStack)
}{
	{"return address outside the code cache", EndNoCode, func(s *fakeStack) {
		s.frames = nil
		s.pc = libjvm
		s.compiled(s.typical(48), 0x40)
	}},
	{"return address between blobs", EndNoBlob, func(s *fakeStack) {
		s.frames = nil
		s.pc = s.code.end() - 64
		s.compiled(s.typical(48), 0x40)
	}},
	{"frame reaches beyond the stack", EndRead, func(s *fakeStack) {
		s.frames = nil
		s.compiled(s.typical(48), 0x40)
		s.code.put32(s.blobAt(s.pc).addr+uint64(s.BlobFrameSize), guard/2/8)
		s.unplaced()
	}},
	{"frame of no size", EndDirection, func(s *fakeStack) {
		s.frames = nil
		s.compiled(s.typical(48), 0x40)
		s.code.put32(s.blobAt(s.pc).addr+uint64(s.BlobFrameSize), 0)
		s.compiled(s.typical(48), 0x40)
		s.unplaced()
	}},
	{"frame of negative size", EndRead, func(s *fakeStack) {
		s.frames = nil
		s.compiled(s.typical(48), 0x40)
		s.code.put32(s.blobAt(s.pc).addr+uint64(s.BlobFrameSize), 0xfffffffe)
		s.unplaced()
	}},
	{"interpreted frame returns to itself", EndDirection, func(s *fakeStack) {
		m := s.newMethod(10)
		s.frames = nil
		s.interpreted(m, 3).at(m, 3)
		s.mem.put64(s.bp+uint64(int64(s.InterpSenderSp)), s.sp)
		s.unplaced()
	}},
	{"interpreted caller without a method", EndInterpreter, func(s *fakeStack) {
		s.interpreted(s.newMethod(10), 3)
		s.mem.put64(s.bp+uint64(int64(s.InterpMethod)), poison)
		s.frames = nil
		s.compiled(s.typical(48), 0x40)
	}},
	{"interpreted caller between bytecodes", EndInterpreter, func(s *fakeStack) {
		m := s.newMethod(10)
		s.interpreted(m, 3)
		s.mem.put64(s.bp+uint64(int64(s.InterpBcp)), m.codes+10)
		s.frames = nil
		s.compiled(s.typical(48), 0x40)
	}},
	{"interpreted caller without rbp", EndInterpreter, func(s *fakeStack) {
		s.interpreted(s.newMethod(10), 3)
		s.bp = s.sp - 64
		s.frames = nil
		s.compiled(s.typical(48), 0x40)
	}},
	{"wrapper not readable", EndNoAnchor, func(s *fakeStack) {
		s.mem.put64(s.bp+uint64(int64(s.EntryWrapperOffset)), poison)
		s.compiled(s.typical(48), 0x40)
	}},
	{"wrapper below its frame", EndNoAnchor, func(s *fakeStack) {
		s.mem.put64(s.bp+uint64(int64(s.EntryWrapperOffset)), s.sp-256)
		s.compiled(s.typical(48), 0x40)
	}},
	{"anchor below its frame", EndDirection, func(s *fakeStack) {
		s.entry(anchor{sp: s.sp - 4096, pc: s.callStub.begin, fp: 0})
		s.compiled(s.typical(48), 0x40)
	}},
	{"upcall stub whose anchor is below its frame", EndDirection, func(s *fakeStack) {
		s.upcall(anchor{sp: s.sp - 4096, pc: s.callStub.begin}).compiled(s.typical(48), 0x40)
		s.frames = s.frames[len(s.frames)-2:]
		s.unplaced()
	}},
	{"upcall stub whose anchor is no Java frame's", EndNoCode, func(s *fakeStack) {
		s.upcall(anchor{sp: s.sp + 64, pc: libc}).compiled(s.typical(48), 0x40)
		s.frames = s.frames[len(s.frames)-2:]
	}},
	{"virtual thread with callers on the heap", EndHeap, func(s *fakeStack) {
		s.frames = nil
		s.pc = s.ReturnBarrier
		s.compiled(s.typical(48), 0x40).compiled(s.typical(64), 0x60)
	}},
	{"virtual thread being thawed", EndThaw, func(s *fakeStack) {
		s.frames = nil
		s.pc = s.continuation.begin + 80
		s.compiled(s.typical(48), 0x40)
	}},
	{"stub without a caller", EndNoCode, func(s *fakeStack) {
		s.frames = nil
		s.pc = libjvm
		s.called(s.vtable.begin)
		s.sp -= 2048
		s.frames = []placedFrame{{s.stub(s.pc), 0}}
	}},
}

func TestKernelBrokenStack(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		for _, c := range brokenStacks {
			t.Run(c.name, func(t *testing.T) {
				s := vm.newStack(t, 64<<10).entry(anchor{})
				c.build(s)
				s.check(t, w, s.request(), c.end)
			})
		}
	})
}

// Where the frame of a stub for upcalls keeps the anchor may not be known. What is on the stack
// above it is no way to Java.
func TestKernelUpcallUnknown(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		vm.BlobUpcallData = 0
		w.update(t, vm)
		s := vm.newStack(t, 64<<10).entry(anchor{}).compiled(vm.typical(48), 0x40)
		left := s.here()
		s.unseen(libc)
		s.frames = nil
		s.upcall(left).compiled(vm.typical(64), 0x60)
		s.check(t, w, s.request(), EndNoAnchor)
	})
}

// A VM without virtual threads has no return barrier: a return address of 0 is none. Of a VM that
// has virtual threads it may not be known which of the continuations' stubs it is.
func TestKernelNoBarrier(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		vm.ReturnBarrier = 0
		w.update(t, vm)
		for pc, end := range map[uint64]WalkEnd{0: EndNoCode, vm.continuation.begin + 80: EndHeap} {
			s := vm.newStack(t, 64<<10).entry(anchor{})
			s.frames, s.pc = nil, pc
			s.compiled(s.typical(48), 0x40)
			s.check(t, w, s.request(), end)
		}
	})
}
