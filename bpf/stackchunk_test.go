//go:build linux && amd64

package bpf

import (
	"testing"
)

// forLooms runs a test against virtual threads of every build and for every kind of reference.
func forLooms(t *testing.T, f func(*testing.T, *walker, *fakeLoom)) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		flags := vm.Flags
		for i, references := range referenceKinds {
			t.Run(references, func(t *testing.T) {
				vm.Flags = flags
				if i%2 == 1 {
					vm.Flags |= HotspotChunkArgsize
				}
				l := vm.newLoom(t, references)
				w.update(t, vm)
				f(t, w, l)
			})
		}
	})
}

// onCarrier is a virtual thread whose carrier has a few frames.
func (l *fakeLoom) onCarrier(t testing.TB) *mounted {
	return l.mount(l.newStack(t, 64<<10).entry(anchor{}).interpreted(l.newMethod(30), 3).compiled(l.typical(64), 0x40))
}

// Virtual threads with frames on the heap, which a walk must find whole.
var mountedStacks = []struct {
	name  string
	build func(*fakeLoom, *mounted) *fakeStack
}{
	{"all is on the stack", func(l *fakeLoom, m *mounted) *fakeStack {
		return m.compiled(l.typical(48), 0x40).compiled(l.typical(64), 0x60)
	}},
	{"compiled", func(l *fakeLoom, m *mounted) *fakeStack {
		a, b := l.typical(48), l.typical(96)
		m.yield(func(s *fakeStack) { s.compiled(a, 0x40).compiled(b, 0x60).compiled(a, 0x80) })
		return m.thaw(0).compiled(b, 0x80).compiled(a, 0x60)
	}},
	{"one frame on each side", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) })
		return m.thaw(0).compiled(l.typical(64), 0x40)
	}},
	{"arguments above the return barrier", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) })
		return m.thaw(40).compiled(l.typical(64), 0x40)
	}},
	{"interpreted", func(l *fakeLoom, m *mounted) *fakeStack {
		a, b := l.newMethod(300), l.newMethod(50)
		m.yield(func(s *fakeStack) { s.interpreted(a, 299).interpreted(b, 7).interpreted(b, 8) })
		return m.thaw(0).interpreted(a, 10).interpreted(b, 20).at(b, 22)
	}},
	{"compiled and interpreted take turns", func(l *fakeLoom, m *mounted) *fakeStack {
		c, i := l.typical(64), l.newMethod(300)
		m.yield(func(s *fakeStack) {
			s.interpreted(i, 3).compiled(c, 0x40).compiled(c, 0x48).interpreted(i, 5).interpreted(i, 6).compiled(c,
				0x50)
		})
		return m.thaw(0).interpreted(i, 9).compiled(c, 0x60)
	}},
	{"an interpreted frame is the innermost on the heap", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(func(s *fakeStack) { s.compiled(l.typical(64), 0x40).interpreted(l.newMethod(20), 5) })
		return m.thaw(0).compiled(l.typical(64), 0x40)
	}},
	{"several chunks", func(l *fakeLoom, m *mounted) *fakeStack {
		c, i := l.typical(64), l.newMethod(300)
		m.yield(func(s *fakeStack) { s.compiled(c, 0x40).interpreted(i, 1) })
		m.yield(func(s *fakeStack) { s.interpreted(i, 2).compiled(c, 0x48) })
		m.yield(func(s *fakeStack) { s.compiled(c, 0x50).compiled(c, 0x58) })
		return m.thaw(0).compiled(c, 0x60)
	}},
	{"empty chunks", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(nil).yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) }).yield(nil)
		return m.thaw(0).compiled(l.typical(64), 0x40)
	}},
	{"nothing on the heap", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(nil)
		return m.thaw(0).compiled(l.typical(64), 0x40)
	}},
	{"a stub on top", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) })
		s := m.thaw(0).compiled(l.typical(64), 0x40).called(l.vtable.begin + 8)
		s.seen(s.stub(s.pc))
		return s
	}},
	{"a native method on top", func(l *fakeLoom, m *mounted) *fakeStack {
		m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) })
		return m.thaw(0).compiled(l.typical(64), 0x40).compiled(l.enter, 0x60)
	}},
	{"recursion", func(l *fakeLoom, m *mounted) *fakeStack { // no frame is a copy of another one
		c := l.typical(64)
		m.yield(func(s *fakeStack) { s.compiled(c, 0x40).compiled(c, 0x40).compiled(c, 0x40) })
		return m.thaw(0).compiled(c, 0x40).compiled(c, 0x40)
	}},
	{"a continuation in another one", func(l *fakeLoom, m *mounted) *fakeStack {
		c := l.typical(64)
		m.yield(func(s *fakeStack) { s.compiled(c, 0x40).compiled(c, 0x48) })
		inner := l.mount(m.thaw(0).compiled(c, 0x50))
		inner.yield(func(s *fakeStack) { s.compiled(c, 0x58).compiled(c, 0x60) })
		return inner.thaw(0).compiled(c, 0x68)
	}},
}

func TestKernelMounted(t *testing.T) {
	forLooms(t, func(t *testing.T, w *walker, l *fakeLoom) {
		for _, c := range mountedStacks {
			t.Run(c.name, func(t *testing.T) {
				s := c.build(l, l.onCarrier(t))
				s.check(t, w, s.request(), EndRoot)
			})
		}
	})
}

// Frames on the heap that a walk must not take for what they are not. What was found before counts.
var unreachedStacks = []struct {
	name  string
	end   WalkEnd
	found int // frames: those on the stack, and of the heap
	spoil func(*fakeLoom, *mounted)
}{
	{"nothing is known of chunks", EndHeap, 2, func(l *fakeLoom, _ *mounted) { l.Flags &^= HotspotChunks }},
	{"no entry", EndHeap, 2, func(l *fakeLoom, m *mounted) { m.mem.put64(m.entry+uint64(l.EntryCont), poison) }},
	{"the entry is too far away", EndHeap, 2, func(l *fakeLoom, m *mounted) {
		m.mem.put64(m.entry+uint64(l.EntryCont), 0)
		m.mem.put64(m.entry+uint64(l.EntryCont)+64*8, m.continuation)
	}},
	{"no chunk", EndHeap, 2, func(l *fakeLoom, m *mounted) { l.reference(m.continuation+uint64(l.ContTail), 0) }},
	{"another class", EndHeap, 2, func(l *fakeLoom, m *mounted) {
		l.heap.put64(m.chunk, ^l.heap.word(m.chunk))
		l.heap.put64(m.chunk+8, ^l.heap.word(m.chunk+8))
	}},
	{"another one's chunk", EndHeap, 2, func(l *fakeLoom, m *mounted) {
		l.reference(m.chunk+uint64(l.ChunkCont), m.continuation+8)
	}},
	{"chunk outside of the heap", EndHeap, 2, func(l *fakeLoom, m *mounted) { l.HeapHigh = m.chunk }},
	{"sp behind the chunk", EndHeap, 2, func(l *fakeLoom, m *mounted) { l.heap.put32(m.chunk+uint64(l.ChunkSp), 513) }},
	{"size that no stack has", EndHeap, 2, func(l *fakeLoom, m *mounted) {
		l.heap.put32(m.chunk+uint64(l.ChunkSize),
			1<<31)
	}},
	{"pc and sp are of two frames", EndThaw, 2, func(l *fakeLoom,
		m *mounted) {
		l.heap.put64(m.chunk+uint64(l.ChunkPc), l.enter.begin)
	}},
	{"frames go on behind the chunk's bottom", EndHeap, 4, func(l *fakeLoom, m *mounted) {
		bottom := l.heap.int(m.chunk + uint64(l.ChunkBottom))
		if l.Flags&HotspotChunkArgsize != 0 {
			bottom += 4
		} else {
			bottom -= 4
		}
		l.heap.put32(m.chunk+uint64(l.ChunkBottom), bottom)
	}},
	{"it is not known where virtual threads begin", EndHeap, 4,
		func(l *fakeLoom, _ *mounted) { l.meta.put64(l.EnterReturn, 0) }},
	{"parents without frames and end", EndHeap, 4, func(l *fakeLoom, m *mounted) {
		empty := m.yield(nil).chunk
		for range 8 {
			m.yield(nil)
		}
		l.reference(m.continuation+uint64(l.ContTail), m.first)
		l.reference(m.first+uint64(l.ChunkParent), m.chunk)
		l.reference(empty+uint64(l.ChunkParent), m.chunk)
	}},
}

func TestKernelUnreached(t *testing.T) {
	forLooms(t, func(t *testing.T, w *walker, l *fakeLoom) {
		before := l.HotspotProcess
		for _, c := range unreachedStacks {
			t.Run(c.name, func(t *testing.T) {
				l.HotspotProcess = before
				m := l.onCarrier(t)
				m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40).compiled(l.typical(64), 0x48) })
				s := m.thaw(0).compiled(l.typical(64), 0x50).compiled(l.typical(48), 0x58)
				c.spoil(l, m)
				w.update(t, l.fakeVM)
				s.innermost(c.found)
				s.check(t, w, s.request(), c.end)
			})
		}
	})
}

// A chunk whose parent it is itself: the walk ends when it has read as much as it may.
func TestKernelChunkLoop(t *testing.T) {
	forLooms(t, func(t *testing.T, w *walker, l *fakeLoom) {
		m := l.onCarrier(t)
		m.yield(func(s *fakeStack) { s.compiled(l.typical(48), 0x40) })
		l.reference(m.chunk+uint64(l.ChunkParent), m.chunk)
		s := m.thaw(0).compiled(l.typical(64), 0x50)
		const lookupBudget, chunkReads = 8192, 16 // LOOKUP_BUDGET, CHUNK_READS
		if got := w.walk(t, s.request()); got.End != EndScan || len(got.User) > lookupBudget/chunkReads+1 {
			t.Errorf("%d frames, ended by %v", len(got.User), got.End)
		}
	})
}

// While the VM copies frames, some are in two places or in none.
func TestKernelFreezing(t *testing.T) {
	w := newWalker(t)
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			vm := newFakeVM(t, b)
			l := vm.newLoom(t, "wide")
			m := l.onCarrier(t)
			th := vm.newThread(m.mem.end())
			w.attach(t, vm)
			doYield, c, i := l.enter, l.typical(64), l.newMethod(30)
			m.yield(func(s *fakeStack) { s.compiled(c, 0x40) })
			before := m.frames
			kept := *m

			check := func(why string, s *fakeStack, want []placedFrame, end WalkEnd) {
				t.Helper()
				walked := *s
				walked.frames = want
				if walked.check(t, w, th.addTo(s.request()), end); t.Failed() {
					t.Fatal(why)
				}
			}
			// calls are those of a virtual thread that yields; the VM runs at the end of them,
			// behind the anchor.
			type call func(*fakeStack)
			compiled := func(off uint64) call { return func(s *fakeStack) { s.compiled(c, off) } }
			interpreted := func(bci uint16) call { return func(s *fakeStack) { s.interpreted(i, bci) } }
			yielding := func(s *fakeStack) { s.compiled(doYield, 0x80) }
			for _, test := range []struct {
				name  string
				calls []call
				copy  int // number of the last calls that the VM does not copy
			}{
				{"compiled", []call{compiled(0x50), compiled(0x58), yielding}, 1},
				{"interpreted", []call{interpreted(5), interpreted(6), yielding}, 1},
				{"where a lock is taken", []call{compiled(0x50), compiled(0x60)}, 0},
				{"where a lock is taken, interpreted", []call{interpreted(5), interpreted(7)}, 0},
			} {
				*m = kept
				l.reference(m.continuation+uint64(l.ContTail), m.chunk)
				stack := *m.fakeStack
				m.fakeStack = &stack
				s := m.thaw(0)
				for _, call := range test.calls {
					call(s)
				}
				frames := s.frames[len(before):]
				anchored := s.here()
				if s.bp != poison {
					anchored.fp = s.bp
				}
				inVM := *s
				inVM.native(libjvm)
				top := func(s *fakeStack, called bool) []placedFrame {
					if !called {
						return frames
					}
					return append(frames[:len(frames):len(frames)], placedFrame{native(libjvm), s.cfa})
				}
				th.enter(inJava, anchored)
				check(test.name+": before", &inVM, append(before[:len(before):len(before)], top(&inVM, true)...),
					EndRoot)

				heap := *m.top
				m.yield(func(s *fakeStack) {
					for _, call := range test.calls[:len(test.calls)-test.copy] {
						call(s)
					}
				})
				*m.top = heap
				check(test.name+": in the VM", &inVM, top(&inVM, true), EndThaw)
				th.enter(inJava, anchor{})
				if test.copy > 0 {
					check(test.name+": behind it", s, top(s, false), EndThaw)
				}
			}

			// Frames are copied back: the anchor is at the entry, or the stub that has it done is
			// on the stack.
			s := *kept.fakeStack
			s.frames = nil
			s.native(libjvm)
			th.enter(inJava, anchor{sp: kept.entry, pc: l.meta.word(l.EnterReturn)})
			check("thawing", &s, s.frames, EndThaw)
			th.enter(inJava, anchor{})
			s = *kept.fakeStack
			s.pc, s.frames = l.continuation.begin+8, []placedFrame{{s.stub(l.continuation.begin + 8), 0}}
			check("in the stub", &s, s.frames, EndThaw)
		})
	}
}

// Places on the heap say nothing about activations: such stacks are no base for others, and teach
// no links.
func TestKernelMountedContexts(t *testing.T) {
	for _, test := range []struct {
		opts contextOptions
		end  WalkEnd
	}{
		{contextOptions{mode: ModePartial, confirm: confirming()[0]}, EndRoot},
		{contextOptions{mode: ModePartial, confirm: confirming()[0], check: true}, EndRoot},
		{contextOptions{mode: ModeChain}, EndHeap},
	} {
		w := newContextWalker(t, test.opts)
		vm := newFakeVM(t, builds[2])
		l := vm.newLoom(t, "narrow")
		m := l.onCarrier(t)
		th := vm.newThread(m.mem.end())
		w.attach(t, vm)
		c := l.typical(64)
		m.yield(func(s *fakeStack) { s.compiled(c, 0x40).compiled(c, 0x48) })
		s := m.thaw(0).compiled(c, 0x50).compiled(c, 0x58).compiled(c, 0x60)
		if test.end == EndHeap {
			s.innermost(3)
		}
		samples := 3
		if test.end == EndHeap {
			samples = 1 // the link is known from then on
		}
		for range samples {
			got := w.take(t, th.addTo(s.request()))
			compare(t, got.Sample, s.want(), test.end)
			if got.Shared != nil && got.Shared.Base != 0 {
				t.Errorf("%+v is built on another sample", test.opts)
			}
		}
	}
}
