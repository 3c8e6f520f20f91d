//go:build linux && amd64

package bpf

import (
	"testing"
	"time"
)

// Whatever a stack holds, a walk looks at the clock after 32 frames or words, and ends when its
// time has passed.
func TestKernelWalkTime(t *testing.T) {
	const steps = 32 // CLOCK_STEPS
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	c, m := vm.typical(48), vm.newMethod(10)
	compiled := vm.newStack(t, 2<<20).entry(anchor{})
	interpreted := vm.newStack(t, 2<<20).entry(anchor{})
	for range MaxWalkedFrames {
		compiled.compiled(c, 0x40)
		interpreted.interpreted(m, 3)
	}
	interpreted.at(m, 4)
	for name, test := range map[string]struct {
		stack *fakeStack
		whole WalkEnd // how a walk ends that has time
	}{
		"native frames":                 {nativeStack(t, MaxWalkedFrames), EndRoot},
		"compiled frames":               {compiled, EndRoot},
		"interpreted frames":            {interpreted, EndRoot},
		"a search for return addresses": {hostileStack(t, w, MaxUserFrames), EndScan},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.stack.request()
			before := w.counter(t, WalksCut)
			if got := w.walk(t, r); got.End != test.whole {
				t.Fatalf("a walk without a bound was ended by %q, want %q", got.End, test.whole)
			}
			if n := w.counter(t, WalksCut) - before; n != 0 {
				t.Errorf("%d walks without a bound were cut", n)
			}
			r.WalkNs = 1
			got := w.walk(t, r)
			if got.End != EndTime || len(got.User) == 0 || len(got.User) > steps {
				t.Errorf("%d frames, ended by %q; want 1 to %d, %q", len(got.User), got.End, steps, EndTime)
			}
			if n := w.counter(t, WalksCut) - before; n != 1 {
				t.Errorf("%d walks were cut, want 1", n)
			}
		})
	}
	// If the CPU stands still, no more than half of the bound counts: of the constant, which is
	// about 4.3 s here.
	for bound, want := range map[time.Duration]WalkEnd{time.Second: EndTime, 5 * time.Second: EndRoot} {
		r := compiled.request()
		r.Stalled, r.WalkNs = uint64(6*time.Second), uint64(bound)
		if got := w.walk(t, r); got.End != want {
			t.Errorf("a walk of at most %v was ended by %q, want %q", bound, got.End, want)
		}
	}
	if !EndTime.Truncated() {
		t.Error("a walk that the clock ended is called whole")
	}
}
