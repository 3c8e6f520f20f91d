//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// wantDepths are the depths of want, counted from base.
func (s *fakeStack) wantDepths(base uint64) []uint32 {
	d := make([]uint32, len(s.frames))
	for i, f := range s.frames {
		if f.cfa != 0 && f.cfa <= base {
			d[len(d)-1-i] = uint32(base - f.cfa)
		}
	}
	return d
}

// checkChained takes a stack twice as a chain does. The first time its link is unknown: every frame
// must be there, and stand where the stack was built, seen from base. The second time there must be
// the same first two frames, at the same depths, and nothing else.
func (s *fakeStack) checkChained(t testing.TB, w *contextWalker, req WalkTestRequest, base uint64, end WalkEnd) {
	t.Helper()
	w.forget(t, s.fakeVM)
	full := w.take(t, req)
	compare(t, full.Sample, s.want(), end)
	if want := s.wantDepths(base); !slices.Equal(full.Depths, want) {
		for i := range min(len(want), len(full.Depths)) {
			if full.Depths[i] != want[i] {
				t.Errorf("depth of frame %d of %d, %v, is %d, want %d", i, len(want), full.User[i], full.Depths[i],
					want[i])
			}
		}
	}
	if full.Flags&(SampleLink|SampleDrawn) != 0 {
		t.Errorf("flags %#x of a stack that was not seen before", full.Flags)
	}

	link := w.take(t, req)
	linked := link.Flags&SampleLink != 0
	if n := len(full.User); n > 2 && !linked || linked && (n < 2 || n == 2 && end == EndRoot) {
		t.Fatalf("taken again with flags %#x, a stack of %d frames", link.Flags, n)
	}
	frames, depths := full.User, full.Depths
	if linked {
		frames, depths, end = frames[:2], depths[:2], EndKnown
	}
	compare(t, link.Sample, frames, end)
	if !slices.Equal(link.Depths, depths) {
		t.Errorf("depths of a link are %v, in the whole stack %v", link.Depths, depths)
	}
}

func forChainBuilds(t *testing.T, f func(*testing.T, *contextWalker, *fakeVM)) {
	w := newContextWalker(t, contextOptions{mode: ModeChain})
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			vm := newFakeVM(t, b)
			w.attach(t, vm)
			f(t, w, vm)
		})
	}
}

// Threads that are not known as Java's: depths are counted from the thread pointer.
func TestKernelDepthOfJava(t *testing.T) {
	forChainBuilds(t, func(t *testing.T, w *contextWalker, vm *fakeVM) {
		for _, c := range javaStacks {
			t.Run(c.name, func(t *testing.T) {
				s := vm.newStack(t, 64<<10).entry(anchor{})
				c.build(s)
				req := s.request()
				req.Fsbase = s.mem.end() - 64
				s.checkChained(t, w, req, req.Fsbase, EndRoot)
			})
		}
	})
}

// A thread of the VM: depths are counted from the base of its stack.
func TestKernelDepthOfJavaThread(t *testing.T) {
	forChainBuilds(t, func(t *testing.T, w *contextWalker, vm *fakeVM) {
		for _, c := range javaStacks {
			t.Run(c.name, func(t *testing.T) {
				s := vm.newStack(t, 64<<10)
				base := s.mem.end() - 128
				th := vm.newThread(base)
				w.attach(t, vm)
				s.entry(anchor{})
				c.build(s)
				s.checkChained(t, w, th.addTo(s.request()), base, EndRoot)
			})
		}
	})
}

func TestKernelDepthOfNative(t *testing.T) {
	w := newContextWalker(t, contextOptions{mode: ModeChain})
	for _, test := range nativeStacks {
		t.Run(test.name, func(t *testing.T) {
			s := nativeStack(t, test.depth)
			if test.spoil != nil {
				test.spoil(s)
			}
			req := s.request()
			req.Fsbase = s.mem.end()
			s.checkChained(t, w, req, req.Fsbase, test.end)
		})
	}
}

func TestKernelDepthOfNativeOverJava(t *testing.T) {
	forChainBuilds(t, func(t *testing.T, w *contextWalker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10)
		th := vm.newThread(s.mem.end())
		w.attach(t, vm)
		nativeOverJava(s, th, func(test string, end WalkEnd, _ uint8) {
			t.Helper()
			if s.checkChained(t, w, th.addTo(s.request()), s.mem.end(), end); t.Failed() {
				t.Fatal(test)
			}
		})
	})
}

func TestKernelDepthOfNativeReachesJava(t *testing.T) {
	forChainBuilds(t, func(t *testing.T, w *contextWalker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10).entry(anchor{}).interpreted(vm.newMethod(9), 4).compiled(vm.typical(64), 0x40)
		for _, pc := range []uint64{libjvm, libc, libc + 64} {
			s.native(pc)
			req := s.request()
			req.Fsbase = s.mem.end()
			s.checkChained(t, w, req, req.Fsbase, EndRoot)
		}
	})
}

// What could be walked of a stack that cannot be walked to its root has its depths.
func TestKernelDepthOfBrokenStack(t *testing.T) {
	forChainBuilds(t, func(t *testing.T, w *contextWalker, vm *fakeVM) {
		for _, c := range brokenStacks {
			t.Run(c.name, func(t *testing.T) {
				s := vm.newStack(t, 64<<10)
				// What an earlier walk left behind is not taken for the depth of a frame that leads
				// nowhere.
				before := *s
				before.entry(anchor{}).compiled(vm.typical(64), 0x40).compiled(vm.typical(64),
					0x40).compiled(vm.typical(64), 0x40)
				req := before.request()
				req.Fsbase = s.mem.end()
				before.checkChained(t, w, req, req.Fsbase, EndRoot)

				s.entry(anchor{})
				c.build(s)
				req = s.request()
				req.Fsbase = s.mem.end()
				s.checkChained(t, w, req, req.Fsbase, c.end)
			})
		}
	})
}

// Frames deeper than a walk goes.
func TestKernelDepthOfDeepStack(t *testing.T) {
	forChainBuilds(t, func(t *testing.T, w *contextWalker, vm *fakeVM) {
		c, m := vm.typical(48), vm.newMethod(10)
		for _, test := range []struct {
			depth int
			end   WalkEnd
		}{{1, EndRoot}, {2, EndRoot}, {3, EndRoot}, {1024, EndRoot}, {1025, EndDepth}, {3000, EndDepth}} {
			compiled, interpreted := vm.newStack(t, 1<<20).entry(anchor{}), vm.newStack(t, 1<<20).entry(anchor{})
			for range test.depth {
				compiled.compiled(c, 0x40)
				interpreted.interpreted(m, 3)
			}
			for _, s := range []*fakeStack{compiled, interpreted} {
				s.innermost(min(test.depth, MaxUserFrames))
				req := s.request()
				req.Fsbase = s.mem.end()
				s.checkChained(t, w, req, req.Fsbase, test.end)
			}
		}
	})
}

// A leaf is at one depth from its first instruction to its last: its samples are of one link.
func TestKernelDepthOfLeaf(t *testing.T) {
	w := newContextWalker(t, contextOptions{mode: ModeChain})
	for _, b := range builds {
		for _, tmpl := range templates {
			t.Run(b.name+"/"+tmpl.name, func(t *testing.T) {
				vm := newFakeVM(t, b)
				w.attach(t, vm)
				m := vm.newMethod(100)
				asm := tmpl.assemble(0x100)
				leaf := vm.compile(asm.bytes, tmpl.frame, asm.complete)
				s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(m, 7).interpreted(m, 8)
				s.called(leaf.begin)
				s.seen(leaf.jit(s.pc))
				w.forget(t, vm)
				for i, step := range asm.steps {
					s.pc = leaf.begin + step.off
					s.frames[len(s.frames)-1].Frame = leaf.jit(s.pc)
					req := s.request()
					req.Fsbase = s.mem.end()
					got := w.take(t, req)
					if want := s.wantDepths(req.Fsbase); i == 0 && !slices.Equal(got.Depths, want) ||
						i > 0 && !slices.Equal(got.Depths, want[:2]) || (i > 0) != (got.Flags&SampleLink != 0) {
						t.Fatalf("before instruction %d, %s: depths %v, flags %#x, want %v", i, step.text, got.Depths,
							got.Flags, want)
					}
					if step.do != nil {
						step.do(s)
					}
				}
			})
		}
	}
}
