//go:build linux && amd64

package bpf

import (
	"fmt"
	"testing"
	"unsafe"
)

// deepStack is a stack of so many frames of 64 methods, the innermost one compiled.
func deepStack(t testing.TB, vm *fakeVM, depth int) *fakeStack {
	t.Helper()
	s := vm.newStack(t, 1<<20).entry(anchor{})
	versions := make([]*blob, 64)
	for i := range versions {
		versions[i] = vm.typical(48 + int32(i)/8*16)
	}
	for i := range depth {
		s.compiled(versions[i%len(versions)], 0x40)
	}
	return s
}

// costs are what taking one context costs, in things that can be counted.
type costs struct {
	bytes          uint32 // bytes of the record
	copies, misses uint64 // STACK_COPIES, SEGMENT_MISSES
}

func (w *contextWalker) costs(t testing.TB, r WalkTestRequest) costs {
	t.Helper()
	copies, misses := w.counter(t, StackCopies), w.counter(t, SegmentMisses)
	got := w.take(t, r)
	return costs{got.size, w.counter(t, StackCopies) - copies, w.counter(t, SegmentMisses) - misses}
}

// What a link costs does not depend on how deep its stack is, and what a partial walk costs only on
// what is new; a whole walk costs more the deeper it is.
func TestKernelContextCost(t *testing.T) {
	pinned(t)
	depths := []int{10, 100, 1000}
	measure := func(mode Mode) (all []costs) {
		w := newContextWalker(t, contextOptions{mode: mode})
		for _, depth := range depths {
			vm := newFakeVM(t, builds[1])
			w.attach(t, vm)
			w.forget(t, vm)
			s := deepStack(t, vm, depth)
			req := s.request()
			req.Fsbase, req.Tid = s.mem.end(), 900+uint32(mode)
			w.take(t, req)
			c := w.costs(t, req)
			if again := w.costs(t, req); c != again {
				t.Errorf("mode %d, %d frames: %+v, then %+v", mode, depth, c, again)
			}
			t.Logf("mode %d, %d frames: %+v", mode, depth, c)
			all = append(all, c)
		}
		return all
	}

	link := costs{bytes: sampleFixed + 2*8 + 2*4, copies: 1}
	for i, c := range measure(ModeChain) {
		if c != link {
			t.Errorf("a link costs %+v at a depth of %d, want %+v", c, depths[i], link)
		}
	}
	const own = 1 + DefaultConfirmLevels
	const shared = uint32(unsafe.Sizeof(SharedStack{}))
	for i, c := range measure(ModePartial) {
		want := costs{bytes: sampleFixed + 8*own + shared, copies: 1}
		if c != want {
			t.Errorf("a partial walk costs %+v at a depth of %d, want %+v", c, depths[i], want)
		}
	}
	walks := measure(ModeWalk)
	for i, c := range walks {
		if c.bytes != sampleFixed+8*uint32(depths[i]) || c.misses != 0 || i > 0 && c.copies <= walks[i-1].copies {
			t.Errorf("a walk costs %+v at a depth of %d", c, depths[i])
		}
	}
}

// What a context costs in the kernel, by depth, with warm caches, and how large its record is.
// Partial walks find three frames that are new. As with walks, ns are for comparing one day with
// another on one machine.
func BenchmarkKernelContext(b *testing.B) {
	pinned(b)
	for _, mode := range []struct {
		name string
		mode Mode
	}{{"walk", ModeWalk}, {"partial", ModePartial}, {"link", ModeChain}} {
		w := newContextWalker(b, contextOptions{mode: mode.mode})
		for _, depth := range []int{10, 20, 100, 250, 1000} {
			b.Run(fmt.Sprintf("%s/%d", mode.name, depth), func(b *testing.B) {
				vm := newFakeVM(b, builds[1])
				w.attach(b, vm)
				w.forget(b, vm)
				s := deepStack(b, vm, depth-3)
				// Two stacks that a thread has by turns would be in one place: the innermost frames
				// are of one size.
				var requests [2]WalkTestRequest
				callees := [2]*blob{vm.typical(64), vm.typical(64)}
				build := func(i int) {
					top := *s
					for range 3 {
						top.compiled(callees[i], 0x40)
					}
					requests[i] = top.request()
					requests[i].Fsbase, requests[i].Tid = s.mem.end(), 950
				}
				var ns, bytes uint64
				i := 0
				for range 4 {
					build(i % 2)
					w.take(b, requests[i%2])
					i++
				}
				for b.Loop() {
					build(i % 2)
					got := w.take(b, requests[i%2])
					i++
					ns += got.ns
					bytes += uint64(got.size)
				}
				b.ReportMetric(float64(ns)/float64(b.N), "ns/context")
				b.ReportMetric(float64(bytes)/float64(b.N), "bytes/context")
			})
		}
	}
}
