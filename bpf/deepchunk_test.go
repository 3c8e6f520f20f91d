//go:build linux && amd64

package bpf

import "testing"

// deepLoom is a virtual thread with that many frames on its carrier's stack, and 480 on the heap.
func deepLoom(t testing.TB, vm *fakeVM, onStack int) (*mounted, *fakeStack) {
	const chunks, perChunk = 8, 60
	l := vm.newLoom(t, "wide")
	c := l.typical(64)
	m := l.mount(l.newStack(t, 256<<10).entry(anchor{}).compiled(c, 0x40))
	for range chunks {
		m.yield(func(s *fakeStack) {
			for range perChunk {
				s.compiled(c, 0x48)
			}
		})
	}
	s := m.thaw(0)
	for range onStack {
		s.compiled(c, 0x50)
	}
	return m, s
}

// Virtual threads with more frames than a sample has room for: the outermost ones are found as
// well. Those on the heap begin in the part that stays, in the part that goes round, or behind what
// is left out.
func TestKernelMountedDeep(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		for _, onStack := range []int{10, MaxUserFrames - RootFrames, 1000, 2000} {
			_, s := deepLoom(t, vm, onStack)
			w.update(t, vm)
			s.checkWhole(t, w, s.request(), EndRoot)
		}
	})
}

// Where the innermost frame on the heap has lost its place to another one, nothing tells whether it
// is a copy of one on the stack. If the VM may be making copies, only what is sure to be on the
// stack counts.
func TestKernelFreezingDeep(t *testing.T) {
	w := newWalker(t)
	for _, test := range []struct {
		onStack int
		end     WalkEnd
	}{{300, EndRoot}, {890, EndRoot}, {950, EndThaw}, {2000, EndThaw}} {
		vm := newFakeVM(t, builds[2])
		m, s := deepLoom(t, vm, test.onStack)
		th := vm.newThread(m.mem.end())
		w.attach(t, vm)
		th.enter(inJava, s.here())
		s.native(libjvm)
		req := th.addTo(s.request())
		if test.end == EndRoot {
			s.checkWhole(t, w, req, test.end)
			continue
		}
		got := w.walk(t, req)
		compare(t, got, s.want()[:MaxUserFrames-RootFrames], test.end)
		if got.LeftOut != 0 {
			t.Errorf("%d on the stack: %d frames left out", test.onStack, got.LeftOut)
		}
	}
}
