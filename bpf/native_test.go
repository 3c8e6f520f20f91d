//go:build linux && amd64

package bpf

import "testing"

// nativeStack is a stack of functions with frame pointers and no VM; rbp is 0 in the first, as the
// ABI asks. Threads have more than the copy of a piece of stack above their frames.
func nativeStack(t testing.TB, depth int) *fakeStack {
	vm := &fakeVM{}
	s := vm.newStack(t, 1<<20)
	s.sp, s.bp, s.pc, s.frames = s.mem.end()-4096, 0, libc, []placedFrame{{native(libc), 0}}
	for i := range depth - 1 {
		s.native(libjvm + uint64(i)<<4)
	}
	return s
}

// Stacks of native code, and how far a walk of them comes.
var nativeStacks = []struct {
	name  string
	depth int
	end   WalkEnd
	spoil func(*fakeStack)
}{
	{"to the root", 10, EndRoot, nil},
	{"one caller", 2, EndRoot, nil},
	{"as deep as can be", 1024, EndRoot, nil},
	{"deeper", 1500, EndDepth, func(s *fakeStack) { s.innermost(1024) }},
	{"rbp is 0 in the sampled function", 5, EndPointer, func(s *fakeStack) { s.bp = 0; s.innermost(1); s.unplaced() }},
	{"rbp is data", 5, EndPointer, func(s *fakeStack) { s.bp = poison; s.innermost(1); s.unplaced() }},
	{"rbp is below the stack", 5, EndPointer, func(s *fakeStack) { s.bp = s.sp - 8; s.innermost(1); s.unplaced() }},
	{"rbp is not aligned", 5, EndPointer, func(s *fakeStack) { s.bp += 4; s.innermost(1); s.unplaced() }},
	{"saved rbp leads to itself", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp, s.bp); s.innermost(2); s.unplaced() }},
	{"saved rbp leads back", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp, s.sp); s.innermost(2); s.unplaced() }},
	{"saved rbp leads out of the stack", 5, EndPointer, func(s *fakeStack) {
		s.mem.put64(s.bp, s.mem.end()+8)
		s.innermost(2)
		s.unplaced()
	}},
	{"half of the pair is mapped", 5, EndPointer, func(s *fakeStack) {
		s.mem.put64(s.bp, s.mem.end()-8)
		s.innermost(2)
		s.unplaced()
	}},
	{"return address is 0", 5, EndRoot, func(s *fakeStack) { s.mem.put64(s.bp+8, 0); s.innermost(1) }},
	{"caller's return address is 0", 5, EndRoot, func(s *fakeStack) {
		s.mem.put64(s.mem.word(s.bp)+8, 0)
		s.innermost(2)
	}},
	{"return address is a small number", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp+8, 4095); s.innermost(1) }},
	{"return address is data", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp+8, poison); s.innermost(1) }},
}

// innermost is for stacks of which a walk finds only so many frames.
func (s *fakeStack) innermost(n int) { s.frames = s.frames[len(s.frames)-n:] }

func TestKernelNative(t *testing.T) {
	w := newWalker(t)
	for _, test := range nativeStacks {
		t.Run(test.name, func(t *testing.T) {
			if test.end == EndDepth { // not where all of a stack is walked: see TestKernelNativeDeep
				return
			}
			s := nativeStack(t, test.depth)
			if test.spoil != nil {
				test.spoil(s)
			}
			if got := s.check(t, w, s.request(), test.end); got.Flags != 0 || got.Attachment != 0 {
				t.Errorf("flags %#x, attachment %d", got.Flags, got.Attachment)
			}
		})
	}
}

func TestKernelNativeDeep(t *testing.T) {
	w := newWalker(t)
	for depth, end := range map[int]WalkEnd{1024: EndRoot, 1025: EndRoot, 1500: EndRoot, MaxWalkedFrames: EndRoot, MaxWalkedFrames + 1: EndDeep} {
		s := nativeStack(t, depth)
		s.checkWhole(t, w, s.request(), end)
	}
}

// below are the frames of s and one that stands right below them, or whose place is not known any
// better.
func (s *fakeStack) below(f Frame) []placedFrame {
	return append(s.frames[:len(s.frames):len(s.frames)], placedFrame{f, s.sp})
}

// nativeOverJava takes a thread that native code calls into Java to places in native code, and
// shows each to the test: what s is there, how a walk of it ends and with which flags.
func nativeOverJava(s *fakeStack, th *fakeThread, show func(test string, end WalkEnd, flags uint8)) {
	vm := s.fakeVM
	const inJavaThread = SampleAttached | SampleJavaThread

	s.bp, s.frames = 0, []placedFrame{{native(libc), 0}}
	s.native(libjvm)
	th.enter(inNative, anchor{})
	show("before the first call of Java", EndRoot, inJavaThread)

	s.frames = nil
	s.entry(anchor{})
	entry := s.bp
	s.interpreted(vm.newMethod(9), 4).compiled(vm.typical(64), 0x40)
	th.enter(inJava, anchor{})
	show("in Java", EndRoot, inJavaThread|SampleJavaFrames)

	th.enter(inNative, s.here())
	java := *s
	s.native(libjvm)
	show("by the anchor, one function", EndRoot, inJavaThread|SampleJavaFrames)
	s.native(libc)
	show("by the anchor", EndRoot, inJavaThread|SampleJavaFrames)
	s.native(libc + 64)
	show("by the anchor, three functions", EndRoot, inJavaThread|SampleJavaFrames)

	s.bp = poison
	s.frames = java.below(native(libc + 64))
	show("by the anchor, native code without frame pointers", EndRoot, inJavaThread|SampleJavaFrames)

	s.bp = entry
	show("by the anchor, rbp leads past it", EndRoot, inJavaThread|SampleJavaFrames)

	for _, rbp := range []uint64{8, poison &^ 7, entry} {
		*s = java
		s.unseen(libjvm)
		s.frames = java.below(native(libjvm))
		s.bp = rbp
		s.native(libc)
		show("by the anchor, its first function uses rbp for itself", EndRoot, inJavaThread|SampleJavaFrames)
	}

	// The interpreter pushes the anchor's pc before it calls: the callee's frame begins below.
	*s = java
	s.push(s.pc)
	th.enter(inNative, anchor{sp: java.sp})
	for _, pc := range []uint64{libjvm, libc, libc + 64} {
		s.native(pc)
		show("by the anchor without pc", EndRoot, inJavaThread|SampleJavaFrames)
	}

	*s = java
	th.enter(inNative, s.here())
	for range 100 {
		s.native(libjvm)
	}
	all := s.frames
	s.frames = append(java.frames[:len(java.frames):len(java.frames)], all[len(all)-65:]...)
	show("by the anchor, with more functions than are shown", EndRoot, inJavaThread|SampleJavaFrames)

	*s = java
	th.enter(inJava, anchor{})
	s.called(libc)
	s.frames = java.below(native(libc))
	show("leaf call, nothing pushed", EndRoot, inJavaThread|SampleJavaFrames)
	s.push(s.bp)
	s.bp = s.sp
	s.sp -= 200
	show("leaf call, with a frame", EndRoot, inJavaThread|SampleJavaFrames)
	framed := *s
	s.native(libc + 64)
	show("leaf call, with two", EndRoot, inJavaThread|SampleJavaFrames)
	s.native(libc + 128)
	show("leaf call, with three", EndRoot, inJavaThread|SampleJavaFrames)
	*s = framed
	s.bp = poison
	show("leaf call, with a frame without rbp", EndRoot, inJavaThread|SampleJavaFrames)
	s.bp = entry
	show("leaf call, rbp leads past all Java frames", EndRoot, inJavaThread|SampleJavaFrames)
	s.bp = poison
	s.sp -= 2048
	s.frames = []placedFrame{{native(libc), 0}}
	show("leaf call, return address too far", EndNoAnchor, inJavaThread)

	*s = java
	s.unseen(libjvm)
	s.mem.put64(s.sp+16, vm.typical(80).returnTo(0x40)) // return address of a call of the past
	s.mem.put64(s.sp+16+80, 0)
	s.called(libc)
	s.frames = java.below(native(libc))
	for _, s.bp = range []uint64{0, 5, poison &^ 7} {
		show("leaf call, a function that libjvm calls uses rbp for itself", EndRoot, inJavaThread|SampleJavaFrames)
	}

	*s = java
	s.bp = s.mem.word(s.sp + 64 - 16) // the interpreted caller's: C1 leaves rbp alone
	s.called(libc)
	s.sp -= 64
	s.frames = java.below(native(libc))
	show("leaf call without a frame pointer, rbp is that of a caller's caller", EndRoot, inJavaThread|SampleJavaFrames)

	for _, bytes := range []int32{16, 48, 160, 1024} {
		*s = java
		s.compiled(vm.typical(64), 0x40).spill(bytes)
		slow := *s
		s.called(libc)
		s.frames = slow.below(native(libc))
		show("barrier's slow path, nothing pushed", EndRoot, inJavaThread|SampleJavaFrames)
		s.push(s.bp)
		s.bp = s.sp
		s.sp -= 200
		show("barrier's slow path, a function with a frame", EndRoot, inJavaThread|SampleJavaFrames)
		s.native(libc + 64)
		show("barrier's slow path, two functions", EndRoot, inJavaThread|SampleJavaFrames)
	}

	*s = java
	th.enter(inNative, s.here())
	s.unseen(libjvm)
	s.mem.put64(s.sp+16, vm.typical(80).returnTo(0x40)) // return address of a call of the past
	s.called(vm.callStub.begin + 300)
	s.frames = java.below(vm.stub(s.pc))
	show("libjvm calls a stub", EndRoot, inJavaThread|SampleJavaFrames)
}

func TestKernelNativeToJava(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10)
		th := vm.newThread(s.mem.end())
		w.attach(t, vm)
		nativeOverJava(s, th, func(test string, end WalkEnd, flags uint8) {
			t.Helper()
			got := s.check(t, w, th.addTo(s.request()), end)
			if got.Flags != flags {
				t.Errorf("flags %#x, want %#x", got.Flags, flags)
			}
			if t.Failed() {
				t.Fatal(test)
			}
		})
	})
}

// Native code without a thread of the VM that was called by Java all the same: its storage is not
// known.
func TestKernelNativeReachesJava(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10).entry(anchor{}).interpreted(vm.newMethod(9), 4).compiled(vm.typical(64), 0x40)
		s.native(libjvm).native(libc)
		s.check(t, w, s.request(), EndRoot)
	})
}

// What is on top of the stack of a goroutine may be the return address of a function without a
// frame.
func TestKernelMaybeCaller(t *testing.T) {
	w := newWalker(t)
	s := nativeStack(t, 3)
	code := newRegion(t, 4096)
	sampled, back := code.base+0x100, code.base+0x806
	goroutine := s.mem.base
	request := func(instruction ...byte) WalkTestRequest {
		s.mem.put64(goroutine, s.mem.base)
		s.mem.put64(goroutine+8, s.mem.end())
		code.put(back-6, make([]byte, 6))
		code.put(back-uint64(len(instruction)), instruction)
		r := s.request()
		r.Pc, r.Goroutine = sampled, goroutine
		return r
	}
	s.sp -= 8
	s.mem.put64(s.sp, back)
	walked := func(r WalkTestRequest) []Frame { return w.walk(t, r).User }
	direct := []byte{0xe8, 0, 0, 0, 0}
	for name, instruction := range map[string][]byte{"direct": direct, "by register": {0xff, 0xd1}, "by memory": {0xff, 0x51, 0x18}, "by far memory": {0xff, 0x91, 0, 1, 0, 0}} {
		got := walked(request(instruction...))
		low, distance, ok := Frame(0), int32(0), false
		if len(got) > 1 {
			var l uint32
			l, distance, ok = got[1].MaybeCaller()
			low = Frame(Sampled(l, code.base))
		}
		if len(got) != 4 || !ok || uint64(low) != sampled || distance != int32(back-sampled) {
			t.Errorf("%s call: %v", name, got)
		}
	}
	for name, change := range map[string]func(*WalkTestRequest){
		"no call":           func(*WalkTestRequest) { code.put(back-6, make([]byte, 6)) },
		"no goroutine":      func(r *WalkTestRequest) { r.Goroutine = 0 },
		"nothing there":     func(r *WalkTestRequest) { r.Goroutine = 8 },
		"another stack":     func(*WalkTestRequest) { s.mem.put64(goroutine+8, s.sp) },
		"far from the code": func(r *WalkTestRequest) { r.Pc += 1 << 28 },
	} {
		r := request(direct...)
		change(&r)
		if got := walked(r); len(got) != 3 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMaybeCaller(t *testing.T) {
	for _, distance := range []int32{0, 1, -1, 1<<27 - 1, -1 << 27} {
		const pc = 0x55d0_8765_4321
		f := MaybeCallerFrame(pc, pc+uint64(int64(distance)))
		low, got, ok := f.MaybeCaller()
		if !ok || got != distance || Sampled(low, pc-0x1000) != pc || Sampled(low, pc) != pc {
			t.Errorf("%d: %#x, %d, %v", distance, low, got, ok)
		}
	}
	if _, _, ok := native(libc).MaybeCaller(); ok {
		t.Error("an address")
	}
}
