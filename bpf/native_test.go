//go:build linux && amd64

package bpf

import "testing"

// nativeStack is a stack of functions with frame pointers and no VM; rbp is 0 in the first, as the ABI asks.
func nativeStack(t testing.TB, depth int) *fakeStack {
	vm := &fakeVM{}
	s := vm.newStack(t, 512<<10)
	s.sp, s.bp, s.pc, s.frames = s.mem.end()-1024, 0, libc, []Frame{native(libc)}
	for i := range depth - 1 {
		s.native(libjvm + uint64(i)<<4)
	}
	return s
}

func TestKernelNative(t *testing.T) {
	w := newWalker(t)
	deepest := func(n int) func(*fakeStack) {
		return func(s *fakeStack) { s.frames = s.frames[len(s.frames)-n:] }
	}
	for _, test := range []struct {
		name  string
		depth int
		end   WalkEnd
		spoil func(*fakeStack)
	}{
		{"to the root", 10, EndRoot, nil},
		{"one caller", 2, EndRoot, nil},
		{"as deep as can be", 1024, EndDepth, nil}, // the root's rbp is not looked at
		{"deeper", 1500, EndDepth, deepest(1024)},
		{"rbp is 0 in the sampled function", 5, EndPointer, func(s *fakeStack) { s.bp = 0; deepest(1)(s) }},
		{"rbp is data", 5, EndPointer, func(s *fakeStack) { s.bp = poison; deepest(1)(s) }},
		{"rbp is below the stack", 5, EndPointer, func(s *fakeStack) { s.bp = s.sp - 8; deepest(1)(s) }},
		{"rbp is not aligned", 5, EndPointer, func(s *fakeStack) { s.bp += 4; deepest(1)(s) }},
		{"saved rbp leads to itself", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp, s.bp); deepest(2)(s) }},
		{"saved rbp leads back", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp, s.sp); deepest(2)(s) }},
		{"saved rbp leads out of the stack", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp, s.mem.end()+8); deepest(2)(s) }},
		{"half of the pair is mapped", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp, s.mem.end()-8); deepest(2)(s) }},
		{"return address is 0", 5, EndRoot, func(s *fakeStack) { s.mem.put64(s.bp+8, 0); deepest(1)(s) }},
		{"return address is a small number", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp+8, 4095); deepest(1)(s) }},
		{"return address is data", 5, EndPointer, func(s *fakeStack) { s.mem.put64(s.bp+8, poison); deepest(1)(s) }},
	} {
		t.Run(test.name, func(t *testing.T) {
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

// A thread that native code calls into Java, seen while it is in native code below.
func TestKernelNativeToJava(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10)
		th := vm.newThread(s.mem.end())
		w.attach(t, vm)
		leaf := func(test string, end WalkEnd, flags uint8) {
			t.Helper()
			got := s.check(t, w, th.on(s.request()), end)
			if got.Flags != flags {
				t.Errorf("%s: flags %#x, want %#x", test, got.Flags, flags)
			}
			if t.Failed() {
				t.Fatal(test)
			}
		}
		const inJavaThread = SampleAttached | SampleJavaThread

		s.bp, s.frames = 0, []Frame{native(libc)}
		s.native(libjvm)
		th.enter(inNative, anchor{})
		leaf("before the first call of Java", EndRoot, inJavaThread)

		s.frames = nil
		s.entry(anchor{})
		entry := s.bp
		s.interpreted(vm.newMethod(9), 4).compiled(vm.typical(64), 0x40)
		th.enter(inJava, anchor{})
		leaf("in Java", EndRoot, inJavaThread|SampleJavaFrames)

		th.enter(inNative, s.here())
		java := *s
		s.native(libjvm).native(libc)
		leaf("by the anchor", EndRoot, inJavaThread|SampleJavaFrames)

		s.bp = poison
		s.frames = append(java.frames[:len(java.frames):len(java.frames)], native(libc))
		leaf("by the anchor, native code without frame pointers", EndRoot, inJavaThread|SampleJavaFrames)

		s.bp = entry
		leaf("by the anchor, rbp leads past it", EndRoot, inJavaThread|SampleJavaFrames)

		deep := java
		for range 100 {
			deep.native(libjvm)
		}
		got := w.walk(t, th.on(deep.request()))
		want := deep.want()
		compare(t, got, append(want[:1+64:1+64], want[100:]...), EndRoot) // the 64 nearest are shown

		*s = java
		th.enter(inJava, anchor{})
		s.called(libc)
		s.frames = append(java.frames[:len(java.frames):len(java.frames)], native(libc))
		leaf("leaf call, nothing pushed", EndRoot, inJavaThread|SampleJavaFrames)
		s.push(s.bp)
		s.bp = s.sp
		s.sp -= 200
		leaf("leaf call, with a frame", EndRoot, inJavaThread|SampleJavaFrames)
		s.bp = poison
		leaf("leaf call, with a frame without rbp", EndRoot, inJavaThread|SampleJavaFrames)
		s.sp -= 2048
		s.frames = []Frame{native(libc)}
		leaf("leaf call, return address too far", EndNoAnchor, inJavaThread)

		*s = java
		s.bp = s.mem.word(s.sp + 64 - 16) // the interpreted caller's: C1 leaves rbp alone
		s.called(libc)
		s.sp -= 64
		s.frames = append(java.frames[:len(java.frames):len(java.frames)], native(libc))
		leaf("leaf call without a frame pointer, rbp is that of a caller's caller", EndRoot, inJavaThread|SampleJavaFrames)

		*s = java
		th.enter(inNative, s.here())
		s.unseen(libjvm)
		s.mem.put64(s.sp+16, vm.typical(80).returnTo(0x40)) // of a call of the past
		s.called(vm.callStub.begin + 300)
		s.frames = append(java.frames[:len(java.frames):len(java.frames)], vm.stub(s.pc))
		leaf("libjvm calls a stub", EndRoot, inJavaThread|SampleJavaFrames)
	})
}

// Native code without a thread of the VM that was called by Java all the same: its storage is not known.
func TestKernelNativeReachesJava(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10).entry(anchor{}).interpreted(vm.newMethod(9), 4).compiled(vm.typical(64), 0x40)
		s.native(libjvm).native(libc)
		s.check(t, w, s.request(), EndRoot)
	})
}
