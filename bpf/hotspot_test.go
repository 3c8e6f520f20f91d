//go:build linux && amd64

package bpf

import "testing"

// forBuilds runs a test against a fake VM of every build.
func forBuilds(t *testing.T, f func(*testing.T, *walker, *fakeVM)) {
	w := newWalker(t)
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			vm := newFakeVM(t, b)
			w.attach(t, vm)
			f(t, w, vm)
		})
	}
}

// Stacks of Java frames that a walk must find whole.
var javaStacks = []struct {
	name  string
	build func(*fakeStack)
}{
	{"compiled", func(s *fakeStack) {
		a, b := s.typical(48), s.typical(1024)
		s.compiled(a, 0x40).compiled(b, 0x60).compiled(a, 0x80)
	}},
	{"interpreted", func(s *fakeStack) {
		m, n := s.newMethod(300), s.newMethod(5)
		s.interpreted(m, 299).interpreted(n, 0).interpreted(m, 12).at(m, 100)
	}},
	{"interpreted method in its first bytecode", func(s *fakeStack) {
		m := s.newMethod(65535)
		s.interpreted(m, 65534).at(m, 0)
	}},
	{"compiled, called by interpreted", func(s *fakeStack) {
		m, c := s.newMethod(64), s.typical(64)
		s.interpreted(m, 3).compiled(c, 0x40).interpreted(m, 5).compiled(c, 0x50).compiled(c, 0x60)
	}},
	{"interpreted native method", func(s *fakeStack) {
		m, n := s.newMethod(20), s.newMethod(0)
		s.interpreted(m, 3).interpreted(n, noBCI)
	}},
	{"frame larger than the stack copy", func(s *fakeStack) {
		huge, small := s.typical(20<<10), s.typical(48)
		s.compiled(small, 0x40).compiled(huge, 0x40).compiled(small, 0x40)
	}},
	{"vtable stub", func(s *fakeStack) {
		s.compiled(s.typical(48), 0x40).called(s.vtable.begin + 8)
		s.seen(s.stub(s.pc))
	}},
	{"adapter", func(s *fakeStack) {
		s.interpreted(s.newMethod(9), 4).called(s.adapter.begin + 8)
		s.seen(s.stub(s.pc))
	}},
	{"runtime stub", func(s *fakeStack) {
		stub := s.newBlob(nameOther, make([]byte, 100), 6, 0)
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).called(stub.begin + 20)
		s.push(s.bp)
		s.sp -= 32
		s.bp = poison
		s.seen(s.stub(s.pc))
	}},
	{"runtime stub before its frame stands", func(s *fakeStack) {
		stub := s.newBlob(nameOther, make([]byte, 100), 6, 0)
		s.compiled(s.typical(96), 0x40).compiled(s.typical(96), 0x40).called(stub.begin)
		s.seen(s.stub(s.pc))
	}},
	{"stub that keeps registers", func(s *fakeStack) {
		stub := s.newBlob(nameOther, make([]byte, 100), 0, 0)
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).called(stub.begin + 20)
		s.push(s.bp)
		s.bp = s.sp
		for range 10 {
			s.push(poison)
		}
		s.seen(s.stub(s.pc))
	}},
	{"C1 pushes a stub's arguments", func(s *fakeStack) {
		c := s.typical(64)
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).compiled(c, 0x40)
		s.code.put(s.pc, []byte{0x5f, 0x41, 0x58}) // pop rdi; pop r8: behind the call
		s.push(poison)
		s.push(poison)
		s.called(s.newBlob(nameOther, make([]byte, 100), 0, 0).begin + 8)
		s.seen(s.stub(s.pc))
	}},
	{"C2 pushes words onto its frame", func(s *fakeStack) {
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).compiled(s.typical(64), 0x40)
		s.push(poison)
		s.push(poison)
	}},
	{"C2 saves registers for a barrier", func(s *fakeStack) {
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).compiled(s.typical(64), 0x40).spill(400)
	}},
	{"C2 saves few registers for a barrier", func(s *fakeStack) {
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).compiled(s.typical(64), 0x40).spill(16)
	}},
	{"another barrier's slow path is behind", func(s *fakeStack) {
		s.interpreted(s.newMethod(9), 4).compiled(s.typical(48), 0x40).compiled(s.typical(64), 0x40).spill(48)
		s.sp += 48 // this one has saved nothing
	}},
	{"interpreter entry from interpreted", func(s *fakeStack) {
		m, n := s.newMethod(50), s.newMethod(60)
		s.interpreted(m, 30)
		s.enter(n, s.sp, 8)
	}},
	{"interpreter entry from compiled", func(s *fakeStack) {
		n := s.newMethod(60)
		s.interpreted(s.newMethod(50), 30).compiled(s.typical(64), 0x40)
		sender := s.sp
		s.sp -= 40 // an adapter put the arguments where the interpreter wants them
		s.enter(n, sender, 8)
	}},
	{"interpreter exit to interpreted", func(s *fakeStack) {
		s.interpreted(s.newMethod(50), 30)
		s.leaveInterpreter() // seen as the caller, where it made the call
	}},
	{"interpreter exit to compiled", func(s *fakeStack) {
		s.interpreted(s.newMethod(50), 30).compiled(s.typical(64), 0x40)
		s.leaveInterpreter()
		s.seen(s.stub(s.pc))
	}},
	{"Java through native", func(s *fakeStack) {
		c, n := s.typical(48), s.typical(80)
		s.code.put64(n.addr+uint64(s.BlobName), s.NameNative)
		s.interpreted(s.newMethod(9), 4).compiled(n, 0x40)
		left := s.here()
		s.unseen(libc)
		s.unseen(libjvm)
		s.entry(left).compiled(c, 0x40)
		left = s.here()
		s.unseen(libjvm)
		s.entry(left).compiled(c, 0x60)
	}},
	{"upcalls", func(s *fakeStack) {
		c, n := s.typical(48), s.typical(80)
		s.code.put64(n.addr+uint64(s.BlobName), s.NameNative)
		s.interpreted(s.newMethod(9), 4).compiled(n, 0x40)
		for range 2 {
			left := s.here()
			s.unseen(libc)
			s.upcall(left).interpreted(s.newMethod(9), 4).compiled(c, 0x40)
		}
	}},
	{"upcall, sampled in its stub", func(s *fakeStack) {
		s.compiled(s.typical(80), 0x40)
		left := s.here()
		s.unseen(libc)
		s.upcall(left)
	}},
	{"upcall of a thread that native code made", func(s *fakeStack) {
		s.unseen(libc)
		s.upcall(anchor{}).compiled(s.typical(48), 0x40)
	}},
	{"anchor without pc", func(s *fakeStack) {
		c := s.typical(48)
		s.interpreted(s.newMethod(9), 4).compiled(c, 0x40)
		left := s.here()
		s.push(left.pc) // as a call does
		left.pc = 0
		s.entry(left).compiled(c, 0x60)
	}},
	{"deoptimised frame", func(s *fakeStack) {
		c := s.typical(64)
		s.setDeopt(c, s.BlobDeoptHandler, 0xe8)
		s.code.put32(c.addr+uint64(s.BlobOrigPc), 24)
		s.interpreted(s.newMethod(9), 4).compiled(c, 0x40)
		s.mem.put64(s.sp+24, s.pc)
		s.pc = c.begin + 0xe8
		s.compiled(s.typical(48), 0x40)
	}},
}

// enter calls a method in the interpreter and stands off bytes into its entry code: no frame yet.
func (s *fakeStack) enter(m method, sender, off uint64) {
	s.called(s.interpreter.begin + off)
	s.rbx, s.r13 = m.addr, sender
	s.cfa = sender
	s.seen(m.frame(noBCI))
}

// leaveInterpreter calls a method in the interpreter and stands where it has taken its frame down.
// Its locals are still on the stack, below the caller's.
func (s *fakeStack) leaveInterpreter() {
	s.rbx = s.sp
	s.sp -= 32
	s.called(s.interpreter.begin + 0x800)
	s.cfa = s.rbx
	s.r13 = s.meta.base + 8 // a bytecode, but of the method that returns
}

func TestKernelJava(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		for _, c := range javaStacks {
			t.Run(c.name, func(t *testing.T) {
				s := vm.newStack(t, 64<<10).entry(anchor{})
				c.build(s)
				got := s.check(t, w, s.request(), EndRoot)
				if got.Flags != SampleAttached|SampleJavaFrames || got.Attachment != vm.Serial {
					t.Errorf("flags %#x, attachment %d; want %#x, %d", got.Flags, got.Attachment,
						SampleAttached|SampleJavaFrames, vm.Serial)
				}
				s.check(t, w, s.request(), EndRoot) // from what is cached now
			})
		}
	})
}

// The second deopt handler, for calls of method handles, exists where its flag is set.
func TestKernelDeoptMethodHandle(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[0])
	w.attach(t, vm)
	c := vm.typical(64)
	vm.setDeopt(c, vm.BlobDeoptMhHandler, 0xe8)
	vm.code.put32(c.addr+uint64(vm.BlobOrigPc), 24)
	s := vm.newStack(t, 8<<10).entry(anchor{}).compiled(c, 0x40)
	s.mem.put64(s.sp+24, s.pc)
	s.pc = c.begin + 0xe8
	s.compiled(vm.typical(48), 0x40)
	s.check(t, w, s.request(), EndRoot)

	vm.Flags &^= HotspotDeoptMH
	w.attach(t, vm)
	s.frames[0].Frame = c.jit(c.begin + 0xe8)
	s.check(t, w, s.request(), EndRoot)
}

func TestKernelDepth(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		c, m := vm.typical(48), vm.newMethod(10)
		for _, test := range []struct {
			depth int
			end   WalkEnd
		}{{1, EndRoot}, {1000, EndRoot}, {1024, EndRoot}, {1025, EndRoot}, {1147, EndRoot}, {1148, EndRoot},
			{3000, EndRoot}, {MaxWalkedFrames, EndRoot}, {MaxWalkedFrames + 1, EndDeep}, {7000, EndDeep}} {
			compiled := vm.newStack(t, 2<<20).entry(anchor{})
			interpreted := vm.newStack(t, 2<<20).entry(anchor{})
			for range test.depth {
				compiled.compiled(c, 0x40)
				interpreted.interpreted(m, 3)
			}
			interpreted.at(m, 4)
			for _, s := range []*fakeStack{compiled, interpreted} {
				s.checkWhole(t, w, s.request(), test.end)
			}
		}
	})
}
