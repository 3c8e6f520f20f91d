//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"slices"
	"testing"
)

// A target is a fake VM with a stack that shows most kinds of frames, for the fuzzer to spoil.
type target struct {
	*fakeStack
	thread  *fakeThread
	words   []uint64 // addresses that mean something to the walker
	regions []region
}

func newTarget(t testing.TB, b build) *target {
	vm := newFakeVM(t, b)
	s := vm.newStack(t, 32<<10)
	tg := &target{fakeStack: s, thread: vm.newThread(s.mem.end())}
	c, big, m := vm.typical(48), vm.typical(3<<10), vm.newMethod(200)
	left := vm.newBlob(vm.NameNative, make([]byte, 256), 10, 16)
	vm.identify(left)
	vm.setDeopt(c, vm.BlobDeoptHandler, 0xe8)

	s.entry(anchor{}).interpreted(m, 7).compiled(big, 0x40).interpreted(m, 100).compiled(c, 0x60).compiled(left, 0x40)
	before := s.here()
	s.unseen(libc)
	s.entry(before).compiled(c, 0x40).interpreted(m, 9).compiled(c, 0x80)
	tg.thread.enter(inJava, anchor{})
	// Room above the pages that hold nothing yet would let most spoilt reads fail at once.
	tg.regions = []region{{vm.code.mem[:vm.heapTop-vm.code.base], vm.code.base}, vm.segments,
		{vm.meta.mem[:vm.metaTop-vm.meta.base], vm.meta.base}, {s.mem.mem[s.sp-s.mem.base:], s.sp}}
	tg.words = []uint64{0, ^uint64(0), vm.NameNmethod, vm.NameNative, vm.NameInterpreter, vm.NameVtable, nameOther,
		vm.CallStubReturn, vm.ReturnBarrier, c.begin, c.begin + 0x40, c.begin + 0xe8, vm.interpreter.begin + 0x400,
		vm.vtable.begin, m.addr, m.codes, libc, s.sp, s.bp, s.mem.end() - 8, vm.code.end()}
	return tg
}

// spoil takes eight bytes a change and returns how to undo all of them.
func (tg *target) spoil(r *WalkTestRequest, changes []byte) (undo func()) {
	type change struct {
		at  []byte
		was [8]byte
	}
	var done []change
	registers := []*uint64{&r.Pc, &r.Sp, &r.Bp, &r.R13, &r.Rbx, &r.Fsbase}
	for ; len(changes) >= 8; changes = changes[8:] {
		where, what := changes[0], changes[1]
		offset, number := uint64(binary.NativeEndian.Uint16(changes[2:])), binary.NativeEndian.Uint32(changes[4:])
		value := uint64(int64(int32(number)))
		if what%4 == 0 {
			value = tg.words[int(what/4)%len(tg.words)]
		} else if what%4 == 1 {
			in := tg.regions[int(what/4)%len(tg.regions)]
			value = in.base + uint64(number)%uint64(len(in.mem))
		}
		if where%8 == 7 {
			*registers[offset%uint64(len(registers))] = value
			continue
		}
		in := tg.regions[where%4].mem
		at := in[offset*8%uint64(len(in)-7):][:8]
		done = append(done, change{at, [8]byte(at)})
		if where%4 == 1 {
			at[0] = byte(number) // a byte of the segment map
		} else {
			binary.NativeEndian.PutUint64(at, value)
		}
	}
	return func() {
		for _, c := range slices.Backward(done) {
			copy(c.at, c.was[:])
		}
	}
}

// Whatever is in a guest's memory and registers, a walk ends, within its bounds, for a reason it
// can give.
func FuzzKernelWalk(f *testing.F) {
	w := newWalker(f)
	targets := []*target{newTarget(f, builds[1]), newTarget(f, builds[2])}
	const known = HotspotUnloadEvents | HotspotTLS | HotspotDeoptMH
	f.Add(uint8(0), uint8(known), []byte{})
	f.Add(uint8(1), uint8(known), []byte{})
	f.Add(uint8(0), uint8(HotspotTLS), []byte{7, 0, 0, 0, 0, 0, 0, 0})
	f.Add(uint8(0), uint8(0), []byte{7, 4 * 13, 0, 0, 0, 0, 0, 0, 3, 4 * 7, 0, 0, 0, 0, 0, 0})
	f.Add(uint8(1), uint8(known), []byte{3, 1 + 4*3, 5, 0, 8, 0, 0, 0, 1, 0, 8, 0, 2, 0, 0, 0})
	f.Add(uint8(1), uint8(known), []byte{7, 4 * 16, 0, 0, 0, 0, 0, 0, 2, 1 + 4*3, 200, 0, 64, 1, 0, 0})
	f.Fuzz(func(t *testing.T, which, flags uint8, changes []byte) {
		tg := targets[int(which)%len(targets)]
		tg.Flags = tg.Flags&^known | uint32(flags)&known
		w.attach(t, tg.fakeVM)
		req := tg.thread.addTo(tg.request())
		undo := tg.spoil(&req, changes)
		defer undo()

		s := w.walk(t, req)
		if s.End <= EndNone || s.End >= EndCount || len(s.User) > 1024 || len(s.Kernel) != 0 {
			t.Fatalf("%d frames, %d of the kernel, ended by %v", len(s.User), len(s.Kernel), s.End)
		}
		for i, fr := range s.User {
			if fr.Kind() < FrameJIT || fr.Kind() > FrameNative {
				t.Fatalf("frame %d is %v", i, fr)
			}
		}
		if len(changes) < 8 {
			compare(t, s, tg.want(), EndRoot)
		}

		if ret, _ := w.run(t, w.Scan, WalkTestRequest{Pid: req.Pid, Sp: req.Sp,
			Words: uint32(len(changes))}); ret < -1 || ret >= 96 {
			t.Fatalf("return address %d words up", ret)
		}
		if ret, _ := w.run(t, w.Find, req); ret < 0 || WalkEnd(ret) >= EndCount {
			t.Fatalf("find returned %d", ret)
		}
		req.Base, req.Len = req.Bp, 8+uint32(len(changes))%128&^7
		if ret, out := w.run(t, w.Cover, req); ret == 0 && out.StackcopyLen < uint64(req.Len) {
			t.Fatalf("%d bytes of %d covered", out.StackcopyLen, req.Len)
		}
	})
}
