//go:build linux && amd64

package bpf

import "testing"

func TestKernelSegmentFind(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		c := vm.compile(make([]byte, 70<<10), 4<<10, 0x123) // three hops of the segment map
		vm.setDeopt(c, vm.BlobDeoptHandler, 0x100)
		for _, test := range []struct {
			name string
			pc   uint64
			ret  WalkEnd
			kind WalkTestBlobKind
			blob *blob
		}{
			{"first instruction", c.begin, 0, WalkTestBlobKindBLOB_NMETHOD, c},
			{"last", c.end() - 1, 0, WalkTestBlobKindBLOB_NMETHOD, c},
			{"interpreter", vm.interpreter.end() - 1, 0, WalkTestBlobKindBLOB_INTERPRETER, vm.interpreter},
			{"vtable stub", vm.vtable.begin, 0, WalkTestBlobKindBLOB_VTABLE, vm.vtable},
			{"adapter", vm.adapter.begin, 0, WalkTestBlobKindBLOB_ADAPTER, vm.adapter},
			{"continuation stub", vm.continuation.begin + 32, 0, WalkTestBlobKindBLOB_CONTINUATION, vm.continuation},
			{"stub for upcalls", vm.upcall.begin + 32, 0, WalkTestBlobKindBLOB_UPCALL, vm.upcall},
			{"other stub", vm.CallStubReturn, 0, WalkTestBlobKindBLOB_STUB, vm.callStub},
			{"nothing there yet", vm.code.end() - 1, EndNoBlob, 0, nil},
			{"below the code cache", vm.code.base - 1, EndNoCode, 0, nil},
			{"above", vm.code.end(), EndNoCode, 0, nil},
		} {
			ret, out := w.run(t, w.Find, WalkTestRequest{Pid: vm.pid(), Pc: test.pc})
			if WalkEnd(ret) != test.ret {
				t.Errorf("%s: %v, want %v", test.name, WalkEnd(ret), test.ret)
			}
			if test.blob == nil || ret != 0 {
				continue
			}
			if WalkTestBlobKind(out.BlobKind) != test.kind || out.BlobBegin != test.blob.begin {
				t.Errorf("%s: kind %d at %#x, want %d at %#x", test.name, out.BlobKind, out.BlobBegin, test.kind,
					test.blob.begin)
			}
			if test.blob == c && (out.BlobFrame != 4<<10 || out.BlobComplete != 0x123 || out.BlobId != c.id ||
				out.BlobDeopt != 0x100) {
				t.Errorf("%s: %+v", test.name, out)
			}
		}
		if ret, _ := w.run(t, w.Find, WalkTestRequest{Pid: vm.pid() + 1<<30, Pc: c.begin}); WalkEnd(ret) != EndRead {
			t.Errorf("without a VM: %v", WalkEnd(ret))
		}
	})
}

// A segment map that lies: no tag may lead out of it, or around in it for ever.
func TestKernelSegmentMapHostile(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	c := vm.typical(48)
	first := (c.addr - vm.code.base) >> vm.SegmentShift
	for _, test := range []struct {
		name    string
		segment uint64
		tags    []byte // tags of the segments from there on
	}{
		{"back to before the heap", 5, []byte{0xfe}},
		{"from free into a block", first + 1, []byte{0xff}},
		{"from a block into free", first, []byte{0xff, 1}},
		{"a block without a kind", first + 1, []byte{0}},
	} {
		copy(vm.segments.mem[test.segment:], test.tags)
		pc := vm.code.base + (test.segment+uint64(len(test.tags)))<<vm.SegmentShift - 1
		if ret, _ := w.run(t, w.Find, WalkTestRequest{Pid: vm.pid(), Pc: pc}); WalkEnd(ret) != EndNoBlob {
			t.Errorf("%s: %v", test.name, WalkEnd(ret))
		}
	}
	for i := range vm.segments.mem {
		vm.segments.mem[i] = 1 // a hop for every segment
	}
	vm.segments.mem[0] = 0
	if ret, _ := w.run(t, w.Find, WalkTestRequest{Pid: vm.pid(), Pc: vm.code.end() - 1}); WalkEnd(ret) != EndNoBlob {
		t.Errorf("map of ones: %v", WalkEnd(ret))
	}
	vm.Heaps[1].SegmentMap = 0
	w.update(t, vm)
	if ret, _ := w.run(t, w.Find, WalkTestRequest{Pid: vm.pid(), Pc: c.begin}); WalkEnd(ret) != EndNoBlob {
		t.Errorf("no map: %v", WalkEnd(ret))
	}
}

// Code memory that is used again, in all the ways in which the code heap does it. The probes say
// that code went away, or nobody does.
func TestKernelCodeReuse(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		pinned(t)
		for _, probes := range []bool{true, false} {
			name := map[bool]string{true: "probes", false: "no probes"}[probes]
			for _, reuse := range codeReuses {
				t.Run(name+"/"+reuse.name, func(t *testing.T) {
					vm := newFakeVM(t, vm.build)
					if !probes {
						vm.Flags &^= HotspotUnloadEvents
					}
					w.attach(t, vm)
					old := vm.compile(make([]byte, 0x600), 64, 0)
					pc := old.begin + 0x500
					s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(vm.newMethod(9), 3).compiled(old, 0x500)
					// missed is how often one walk does not find a segment in the cache.
					missed := func() uint64 {
						before := w.counter(t, SegmentMisses)
						s.check(t, w, s.request(), EndRoot)
						return w.counter(t, SegmentMisses) - before
					}
					first, least := missed(), ^uint64(0)
					// in one frame of 64 the cache is not asked, and two segments may want one
					// place of it
					for range 8 {
						least = min(least, missed())
					}
					if probes && least >= first {
						t.Errorf("%d misses in the first walk, no fewer than %d in others", first, least)
					}

					reuse.do(vm, old)
					if probes {
						w.setEpochs(t, vm, ProfileEpochs{Code: 1})
					}
					now := vm.blobAt(pc)
					s.sp += old.frame - now.frame
					s.mem.put64(s.sp+now.frame-16, s.mem.word(s.sp+now.frame-16))
					now.returnTo(pc - now.begin)
					s.frames[len(s.frames)-1].Frame = now.jit(pc)
					s.check(t, w, s.request(), EndRoot)
				})
			}
		}
	})
}

// Memory that was free when a walk looked there, led by an address that its stack had from before,
// becomes code later, and nobody says so. The walk finds out by itself.
func TestKernelCodeReuseUnannounced(t *testing.T) {
	const recheck = 64 // RECHECK
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	old := vm.compile(make([]byte, 0x600), 64, 0)
	s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(vm.newMethod(9), 3).compiled(old, 0x500)
	s.check(t, w, s.request(), EndRoot)
	now := vm.newBlobAt(old.addr-uint64(vm.BlockHeader), vm.NameNmethod, make([]byte, 0x600), 64/8, 0)
	vm.identify(now)
	pc := now.returnTo(0x500)
	for range recheck {
		if got := w.walk(t, s.request()); got.User[0] == now.jit(pc) {
			s.frames[len(s.frames)-1].Frame = now.jit(pc)
			s.check(t, w, s.request(), EndRoot) // from then on
			return
		}
	}
	t.Errorf("code is not noticed within %d walks", recheck)
}

var codeReuses = []struct {
	name string
	do   func(vm *fakeVM, old *blob)
}{
	{"not at all", func(vm *fakeVM, old *blob) {}},
	{"same place and size", func(vm *fakeVM, old *blob) {
		vm.identify(vm.newBlobAt(old.addr-uint64(vm.BlockHeader), vm.NameNmethod, make([]byte, 0x600), 6, 0))
	}},
	{"larger, from before", func(vm *fakeVM, old *blob) {
		// What comes before old is the continuation stub; nobody uses that any more.
		block := vm.continuation.addr - uint64(vm.BlockHeader)
		vm.identify(vm.newBlobAt(block, vm.NameNmethod, make([]byte, 0x900), 8, 0))
	}},
	{"the end of the free block", func(vm *fakeVM, old *blob) {
		// HotSpot cuts new blocks off the end; what is left of the old one keeps its header, the
		// compile id too.
		block := (old.begin + 0x280) >> vm.SegmentShift << vm.SegmentShift
		vm.identify(vm.newBlobAt(block, vm.NameNmethod, make([]byte, 0x200), 8, 0))
	}},
}

// A Method's memory that is used again for another one.
func TestKernelMethodReuse(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	for _, probes := range []bool{true, false} {
		vm := newFakeVM(t, builds[1])
		if !probes {
			vm.Flags &^= HotspotUnloadEvents
		}
		w.attach(t, vm)
		old, other := vm.newMethod(10), vm.newMethod(100)
		s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(old, 3).compiled(vm.typical(64), 0x40)
		s.check(t, w, s.request(), EndRoot)

		vm.meta.put64(old.addr+uint64(vm.MethodConst), other.codes-uint64(vm.ConstMethodSize))
		s.mem.put64(s.mem.word(s.sp+64-16)+uint64(int64(vm.InterpBcp)), other.codes+77)
		s.frames[0].Frame = old.frame(77)
		if probes {
			w.setEpochs(t, vm, ProfileEpochs{Code: 1, Classes: 1})
		}
		if got := s.check(t, w, s.request(), EndRoot); probes && got.ClassEpoch != 1 {
			t.Errorf("class epoch %d, want 1", got.ClassEpoch)
		}
	}
}

// A class that is redefined leaves its methods' memory to others, and no class is unloaded. Stacks
// stay whole, and what was found there before is told from what is found now, however little
// differs.
func TestKernelMethodRedefined(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	type change func(vm *fakeVM, m *method)
	changes := map[string]change{
		"a longer method": func(vm *fakeVM, m *method) {
			longer := vm.newMethod(100)
			m.codes = longer.codes
			vm.meta.put64(m.addr+uint64(vm.MethodConst), m.codes-uint64(vm.ConstMethodSize))
		},
		"a method of that length": func(vm *fakeVM, m *method) {
			other := vm.newMethod(90)
			m.codes = other.codes
			vm.meta.put64(m.addr+uint64(vm.MethodConst), m.codes-uint64(vm.ConstMethodSize))
		},
		"a method with the same body": func(vm *fakeVM, m *method) {
			const name = 2 // offset of _name_index from _code_size
			vm.meta.put16(m.codes-uint64(vm.ConstMethodSize)+uint64(vm.ConstMethodCodeSize)+name, 7)
		},
		"a method with the same body and names elsewhere": func(vm *fakeVM, m *method) {
			pool := vm.meta.word(m.codes - uint64(vm.ConstMethodSize) + uint64(vm.ConstMethodConstants))
			vm.meta.put64(pool+uint64(vm.ConstPoolSize)+8, 0x5040)
		},
		"a class with equal methods": func(vm *fakeVM, m *method) {
			c := m.codes - uint64(vm.ConstMethodSize)
			pool := vm.meta.word(c + uint64(vm.ConstMethodConstants))
			other := vm.allocate(uint64(vm.ConstPoolSize) + 2*8)
			vm.meta.put64(other+uint64(vm.ConstPoolSize)+8, vm.meta.word(pool+uint64(vm.ConstPoolSize)+8))
			vm.meta.put64(c+uint64(vm.ConstMethodConstants), other)
		},
		"nothing": func(vm *fakeVM, m *method) { // the VM marks a constant
			pool := vm.meta.word(m.codes - uint64(vm.ConstMethodSize) + uint64(vm.ConstMethodConstants))
			vm.meta.put64(pool+uint64(vm.ConstPoolSize)+8, 0x5001)
		},
	}
	for name, change := range changes {
		for _, told := range []bool{true, false} { // whether the VM says that methods may be redefined, or nothing
			vm := newFakeVM(t, builds[2])
			if told {
				vm.mayRedefine(true)
			}
			w.attach(t, vm)
			m := vm.newMethod(90)
			s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(m, 3).compiled(vm.typical(64), 0x40)
			before := s.check(t, w, s.request(), EndRoot)
			if again := s.check(t, w, s.request(), EndRoot); again.ClassEpoch != before.ClassEpoch {
				t.Errorf("%s: class epoch %d after %d, and nothing changed", name, again.ClassEpoch, before.ClassEpoch)
			}

			change(vm, &m)
			s.mem.put64(s.mem.word(s.sp+64-16)+uint64(int64(vm.InterpBcp)), m.codes+77)
			s.frames[0].Frame = m.frame(77)
			want := before.ClassEpoch
			if name != "nothing" {
				want += ClassEpochChange
			}
			changed := w.counter(t, MethodsChanged)
			for range 2 {
				if after := s.check(t, w, s.request(), EndRoot); after.ClassEpoch != want {
					t.Errorf("%s: class epoch %d, want %d", name, after.ClassEpoch, want)
				}
			}
			if got := w.counter(t, MethodsChanged) - changed; (got == 1) != (name != "nothing") {
				t.Errorf("%s: %d changes are counted", name, got)
			}
			seen, ok := (&Objects{ProfileObjects: ProfileObjects{ProfileMaps: ProfileMaps{SeenMethods: w.SeenMethods}}}).
				SeenMethod(vm.Serial, m.addr)
			if !ok || seen.ConstMethod != m.codes-uint64(vm.ConstMethodSize) || seen.Since != want ||
				uint16(seen.Shape) < 90 {
				t.Errorf("%s: seen as %+v, %v", name, seen, ok)
			}
			// User space computes the same word (hotspot.nameWord).
			pool := vm.meta.word(m.codes - uint64(vm.ConstMethodSize) + uint64(vm.ConstMethodConstants))
			index := uint64(uint16(seen.Shape >> vm.MethodNameShift))
			symbol := vm.meta.word(pool+uint64(vm.ConstPoolSize)+8*index) &^ 1
			if word := (pool + symbol) * seenMethodsHash; symbol != 0 && seen.Name != word || symbol == 0 &&
				seen.Name != 0 {
				t.Errorf("%s: name %#x, want %#x of the pool at %#x and the symbol at %#x", name, seen.Name, word, pool,
					symbol)
			}
		}
	}
}

// Where the VM says that nobody redefines methods, they are not read again.
func TestKernelMethodKept(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[2])
	vm.mayRedefine(false)
	w.attach(t, vm)
	m := vm.newMethod(90)
	s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(m, 3).compiled(vm.typical(64), 0x40)
	s.check(t, w, s.request(), EndRoot)
	vm.meta.put64(m.addr+uint64(vm.MethodConst), 0)
	s.check(t, w, s.request(), EndRoot)
}

// Every VM has methods of its own in the table, and one that is full still answers.
func TestKernelSeenMethodsFull(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	o := &Objects{ProfileObjects: ProfileObjects{ProfileMaps: ProfileMaps{SeenMethods: w.SeenMethods}}}
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	for i := range uint32(seenMethods) {
		if err := w.SeenMethods.Put(i, &SeenMethod{Serial: ^uint32(0), Method: 8}); err != nil {
			t.Fatal(err)
		}
	}
	m := vm.newMethod(90)
	s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(m, 3).compiled(vm.typical(64), 0x40)
	s.check(t, w, s.request(), EndRoot)
	if _, ok := o.SeenMethod(vm.Serial, m.addr); !ok {
		t.Error("the method found no place")
	}
	if _, ok := o.SeenMethod(vm.Serial+1, m.addr); ok {
		t.Error("another VM has that method")
	}
}

// Two VMs with the same addresses, as two processes have them, do not share what is cached.
func TestKernelCachePerVM(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	c := vm.typical(64)
	s := vm.newStack(t, 8<<10).entry(anchor{}).compiled(c, 0x40)
	s.check(t, w, s.request(), EndRoot)

	vm.identify(c)
	w.attach(t, vm)
	s.frames[0].Frame = c.jit(s.pc)
	s.check(t, w, s.request(), EndRoot)
}
