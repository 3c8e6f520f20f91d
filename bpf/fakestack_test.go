//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// Marks a register that holds no address.
const poison = 0xb0b0_0000_dead_beef

// Addresses in a native library, as far as frames are concerned; nothing is there.
const (
	libjvm = 0x7f12_3456_0000
	libc   = 0x7f65_4321_0000
)

// A placedFrame is a frame, and where it stands.
type placedFrame struct {
	Frame
	cfa uint64 // canonical frame address: the caller's sp before the call; 0 if a walk cannot know it
}

// A fakeStack is built as a running thread builds its stack: every method below is a call that the
// innermost frame makes. It remembers which frames a walk must find, and where.
type fakeStack struct {
	*fakeVM
	mem                  region
	pc, sp, bp, r13, rbx uint64
	cfa                  uint64        // frame address of what was called last
	frames               []placedFrame // outermost first
	relative             bool          // as in a StackChunk: pointers to interpreted frames are numbers of words
}

// newStack is the stack of a thread that started in native code, whose own frames take the first 2
// KB.
func (vm *fakeVM) newStack(t testing.TB, size int) *fakeStack {
	t.Helper()
	s := &fakeStack{fakeVM: vm, mem: newRegion(t, size), pc: libc, r13: poison, rbx: poison}
	s.sp = s.mem.end() - 2048
	return s
}

// seen adds what was called last to the frames that a walk must find.
func (s *fakeStack) seen(f Frame) { s.frames = append(s.frames, placedFrame{f, s.cfa}) }

// unplaced is for stacks whose outermost frame leads nowhere: a walk cannot tell where it stands.
func (s *fakeStack) unplaced() { s.frames[0].cfa = 0 }

func (s *fakeStack) push(v uint64) {
	s.sp -= 8
	s.mem.put64(s.sp, v)
}

func (s *fakeStack) pop() uint64 {
	s.sp += 8
	return s.mem.word(s.sp - 8)
}

// An anchor is where a thread left Java, as JavaFrameAnchor has it.
type anchor struct{ sp, pc, fp uint64 }

func (vm *fakeVM) putAnchor(r region, addr uint64, a anchor) {
	r.put64(addr+uint64(vm.AnchorSp), a.sp)
	r.put64(addr+uint64(vm.AnchorPc), a.pc)
	r.put64(addr+uint64(vm.AnchorFp), a.fp)
}

// pointer is what a frame has at an address to lead to another one.
func (s *fakeStack) pointer(at, to uint64) uint64 {
	if s.relative && to != poison {
		return uint64(int64(to-at) / 8)
	}
	return to
}

func (s *fakeStack) saveBP() { s.push(s.pointer(s.sp-8, s.bp)) }

// here is the anchor that compiled code sets before it leaves Java: without rbp.
func (s *fakeStack) here() anchor { return anchor{s.sp, s.pc, 0} }

// native calls a native function that keeps a frame pointer.
func (s *fakeStack) native(pc uint64) *fakeStack {
	s.unseen(pc)
	s.seen(native(pc))
	return s
}

// unseen is native for a function that walks leave out.
func (s *fakeStack) unseen(pc uint64) {
	s.cfa = s.sp
	s.push(s.pc)
	s.push(s.bp)
	s.bp = s.sp
	s.sp -= 48
	s.pc = pc
}

// entry is the call stub: native code calls Java. The wrapper remembers the Java frames before, if
// there are any.
func (s *fakeStack) entry(before anchor) *fakeStack {
	s.sp -= 64
	wrapper := s.sp
	s.putAnchor(s.mem, wrapper+uint64(s.WrapperAnchor), before)
	s.unseen(s.CallStubReturn)
	s.sp -= 64
	s.mem.put64(s.bp+uint64(int64(s.EntryWrapperOffset)), wrapper)
	return s
}

// upcall is a stub for upcalls: native code calls Java. Its frame remembers the Java frames before,
// if there are any.
func (s *fakeStack) upcall(before anchor) *fakeStack {
	s.cfa = before.sp // native frames are left out
	s.push(s.pc)
	s.push(s.bp)
	s.bp = s.sp
	s.sp -= 256
	s.putAnchor(s.mem, s.sp+upcallData+uint64(s.UpcallAnchor), before)
	s.pc = s.fakeVM.upcall.returnTo(0x80)
	s.seen(s.stub(s.pc))
	return s
}

// compiled calls compiled code, which now stands behind the call at off and has put rbp to its own
// use.
func (s *fakeStack) compiled(b *blob, off uint64) *fakeStack {
	s.cfa = s.sp
	s.push(s.pc)
	s.saveBP()
	s.sp -= b.frame - 16
	s.bp = poison
	s.pc = b.returnTo(off)
	s.seen(b.jit(s.pc))
	return s
}

// interpreted calls a method in the interpreter, which now stands behind a call at bci.
func (s *fakeStack) interpreted(m method, bci uint16) *fakeStack {
	s.cfa = s.sp
	s.sp -= 3 * 8 // locals
	s.push(s.pc)
	s.saveBP()
	s.bp = s.sp
	s.sp -= 96
	s.mem.put64(s.bp+uint64(int64(s.InterpSenderSp)), s.pointer(s.bp, s.cfa))
	s.mem.put64(s.bp+uint64(int64(s.InterpMethod)), m.addr)
	s.mem.put64(s.bp+uint64(int64(s.InterpBcp)), m.codes+uint64(bci))
	s.pc = s.interpreter.begin + 0x400 // where calls return to: behind no call
	s.seen(m.frame(bci))
	return s
}

// at moves the innermost frame, interpreted, from the call to another bytecode: it is sampled
// there.
func (s *fakeStack) at(m method, bci uint16) *fakeStack {
	s.r13 = m.codes + uint64(bci)
	s.frames[len(s.frames)-1].Frame = m.frame(bci)
	return s
}

// spill is the slow path of a barrier that C2 makes: it saves that many bytes of registers below
// the frame, and behind the call of the collector loads them and jumps back.
func (s *fakeStack) spill(bytes int32) *fakeStack {
	load := []byte{0x48, 0x8b, 0x44, 0x24, 0x08} // mov rax, [rsp+8]
	s.code.put(s.pc, slices.Concat(load, load, addRSP(bytes).bytes, rethrow.bytes))
	for range bytes / 8 {
		s.push(poison)
	}
	return s
}

// called pushes what a call instruction pushes and goes to pc; no frame is built there.
func (s *fakeStack) called(pc uint64) *fakeStack {
	s.cfa = s.sp
	s.push(s.pc)
	s.pc = pc
	return s
}

// request asks for a walk from here.
func (s *fakeStack) request() WalkTestRequest {
	return WalkTestRequest{Pid: s.pid(), Pc: s.pc, Sp: s.sp, Bp: s.bp, R13: s.r13, Rbx: s.rbx}
}

// want are the frames of a walk from here, innermost first.
func (s *fakeStack) want() []Frame {
	w := make([]Frame, len(s.frames))
	for i, f := range s.frames {
		w[len(w)-1-i] = f.Frame
	}
	return w
}

// check walks the stack and compares.
func (s *fakeStack) check(t testing.TB, w *walker, req WalkTestRequest, end WalkEnd) Sample {
	t.Helper()
	got := w.walk(t, req)
	compare(t, got, s.want(), end)
	return got
}

// checkWhole is check for a stack that may have more frames than a sample has room for.
func (s *fakeStack) checkWhole(t testing.TB, w *walker, req WalkTestRequest, end WalkEnd) {
	t.Helper()
	want, leftOut := s.want(), 0
	if root := len(want) - RootFrames; len(want) > MaxUserFrames {
		inner := want[:MaxUserFrames-RootFrames]
		if leftOut, want = root-len(inner), slices.Concat(inner, want[root:]); end == EndDeep {
			leftOut, want = 0, inner
		}
	}
	got := w.walk(t, req)
	compare(t, got, want, end)
	if got.LeftOut != leftOut {
		t.Errorf("%d frames left out, want %d", got.LeftOut, leftOut)
	}
}

func compare(t testing.TB, got Sample, want []Frame, end WalkEnd) {
	t.Helper()
	if got.End != end {
		t.Errorf("walk ended with %q, want %q", got.End, end)
	}
	if slices.Equal(got.User, want) {
		return
	}
	for i := range max(len(got.User), len(want)) {
		var g, w Frame
		if i < len(got.User) {
			g = got.User[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("frame %d of %d is %v, want %v (of %d)", i, len(got.User), g, w, len(want))
			return
		}
	}
}
