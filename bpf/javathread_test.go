//go:build linux && amd64

package bpf

import "testing"

// A fakeThread is a task of a fakeVM: its thread pointer, and the JavaThread that hangs on it.
type fakeThread struct {
	vm         *fakeVM
	fsbase     uint64
	slot       uint64 // address of Thread::_thr_current
	javaThread uint64
	tid        uint32
	born       uint64
	osThread   uint64 // with newThreadByID
	ownTID     uint32 // likewise
}

const (
	fakeModule = 5 // module ID of libjvm in the dynamic thread vector
	fakeVtable = 0x7f00_0000_1110
	inJava     = 8 // JavaThreadState, up to JDK 26
	inNative   = 4
)

var lastTID uint32 = 1000

// newThread lays out thread-local storage as glibc does. The VM must be attached after it.
func (vm *fakeVM) newThread(stackBase uint64) *fakeThread {
	vm.Flags |= HotspotTLS
	vm.TlsModule, vm.TlsOffset, vm.JavaThreadVtable = fakeModule, 0x20, fakeVtable
	lastTID++
	th := &fakeThread{vm: vm, tid: lastTID, born: uint64(lastTID) * 1e3}
	block, dtv := vm.allocate(0x40), vm.allocate(16*(fakeModule+1))
	th.fsbase = vm.allocate(64)
	th.javaThread = vm.allocate(2048)
	th.slot = block + vm.TlsOffset
	vm.meta.put64(th.fsbase+8, dtv)
	vm.meta.put64(dtv+16*fakeModule, block)
	vm.meta.put64(th.slot, th.javaThread)
	vm.meta.put64(th.javaThread, fakeVtable)
	vm.meta.put64(th.javaThread+uint64(vm.ThreadStackBase), stackBase)
	th.enter(inJava, anchor{})
	return th
}

// enter sets the thread's state and where it left Java.
func (th *fakeThread) enter(state uint32, a anchor) {
	if th.vm.ThreadInJava != inJava {
		state /= 2 // JDK 28 has no states in between
	}
	th.vm.meta.put32(th.javaThread+uint64(th.vm.ThreadState), state)
	th.vm.putAnchor(th.vm.meta, th.javaThread+uint64(th.vm.ThreadAnchor), a)
}

// addTo adds the thread to a request.
func (th *fakeThread) addTo(r WalkTestRequest) WalkTestRequest {
	r.Fsbase, r.Born, r.Tid, r.OwnTid = th.fsbase, th.born, th.tid, th.ownTID
	return r
}

func TestKernelThread(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[1])
	th := vm.newThread(0x7000)
	other := vm.newThread(0x8000)
	w.attach(t, vm)
	find := func(want uint64, why string) {
		t.Helper()
		for range 2 { // once from the guest, once from the cache
			ret, out := w.run(t, w.Thread, th.addTo(WalkTestRequest{Pid: vm.pid()}))
			if want == 0 {
				if ret != 1 {
					t.Errorf("%s: returned %d, thread %#x; want none", why, ret, out.JavaThread)
				}
				continue
			}
			base := vm.meta.word(want + uint64(vm.ThreadStackBase))
			if ret != 0 || out.JavaThread != want || out.StackBase != base {
				t.Errorf("%s: returned %d, thread %#x, stack base %#x; want 0, %#x, %#x", why, ret, out.JavaThread,
					out.StackBase, want, base)
			}
		}
	}

	find(th.javaThread, "a JavaThread")
	vm.meta.put64(th.slot, other.javaThread)
	find(other.javaThread, "the slot holds another thread")
	vm.meta.put64(th.slot, 0)
	find(0, "the thread is detached")
	vm.meta.put64(th.slot, th.javaThread)
	find(th.javaThread, "attached again")
	th.born++ // the tid is used again, by a thread with its storage elsewhere
	th.fsbase = other.fsbase
	find(other.javaThread, "another thread under the same tid")
	th.tid += 256 // the same place in the cache
	find(other.javaThread, "another tid")

	dtv := vm.meta.word(th.fsbase + 8)
	vm.meta.put64(dtv+16*fakeModule, ^uint64(0))
	th.tid++
	find(0, "libjvm's storage is not there yet")
	vm.meta.put64(th.fsbase+8, poison)
	find(0, "no vector")
	th.fsbase = 0
	find(0, "no thread pointer")

	vm.Flags &^= HotspotTLS
	w.update(t, vm)
	th.tid--
	find(0, "storage not known for this build")
}

// A thread of the VM that is no JavaThread: a compiler's.
func TestKernelThreadOfOtherClass(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[1])
	th := vm.newThread(0)
	w.attach(t, vm)
	vm.meta.put64(th.javaThread, fakeVtable+0x100)
	if ret, _ := w.run(t, w.Thread, th.addTo(WalkTestRequest{Pid: vm.pid()})); ret != 1 {
		t.Errorf("returned %d, want none", ret)
	}
	s := vm.newStack(t, 8<<10)
	s.sp, s.bp, s.pc, s.frames = s.mem.end()-1024, 0, libc, nil
	s.native(libjvm).native(libjvm + 0x100)
	s.frames = append([]placedFrame{{native(libc), 0}}, s.frames...)
	if got := s.check(t, w, th.addTo(s.request()), EndRoot); got.Flags != SampleAttached {
		t.Errorf("flags %#x, want %#x", got.Flags, SampleAttached)
	}
}
