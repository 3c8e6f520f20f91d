//go:build linux && amd64

package bpf

import (
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// newThreadByID is newThread for a VM in which nothing leads from a thread to its JavaThread but
// the thread's id.
func (vm *fakeVM) newThreadByID(stackBase uint64) *fakeThread {
	th := vm.newThread(stackBase)
	vm.Flags = vm.Flags&^HotspotTLS | HotspotThreads
	vm.ThreadOs, vm.OsThreadId = 520, 44
	th.fsbase = 0
	th.ownTID = th.tid % 1000 // in a container
	th.osThread = vm.allocate(64)
	vm.meta.put64(th.javaThread+uint64(vm.ThreadOs), th.osThread)
	vm.meta.put32(th.osThread+uint64(vm.OsThreadId), th.ownTID)
	return th
}

// know has the kernel side know the thread as user space does, which read the VM's list at a time.
func (w *walker) know(t testing.TB, th *fakeThread, asOf uint64) {
	t.Helper()
	key := KnownThreadKey{Pid: th.vm.pid(), OwnTid: th.ownTID}
	if err := w.KnownThreads.Put(&key, &KnownThread{Thread: th.javaThread, AsOf: asOf,
		Serial: th.vm.Serial}); err != nil {
		t.Fatal(err)
	}
}

// A JavaThread is found by its thread's id. What the table says is held against what the JavaThread
// says of itself.
func TestKernelThreadByID(t *testing.T) {
	w := newWalker(t)
	pinned(t)
	vm := newFakeVM(t, builds[1])
	th := vm.newThreadByID(0x7000)
	w.attach(t, vm)
	register := uint64(0) // as Java code has it
	find := func(want uint64, why string) {
		t.Helper()
		for range 2 { // once from the table, once from the cache
			ret, out := w.run(t, w.Thread, th.addTo(WalkTestRequest{Pid: vm.pid(), Thread: register}))
			if want == 0 && ret != 1 || want != 0 && (ret != 0 || out.JavaThread != want || out.StackBase != 0x7000) {
				t.Errorf("%s: returned %d, thread %#x, stack base %#x; want %#x", why, ret, out.JavaThread,
					out.StackBase, want)
			}
		}
	}
	elsewhere := func() { th.tid += 256 } // another id for the machine, for which nothing is cached

	find(0, "nobody knows it")
	w.know(t, th, th.born-1)
	find(0, "the list was read before the thread began: it has the id of another one")
	w.know(t, th, th.born)
	find(th.javaThread, "in the list")
	th.born++
	find(0, "the id is used again")
	th.born--
	find(th.javaThread, "in the list, again")

	for why, spoil := range map[string]func(uint64){
		"the JavaThread is another thread's": func(v uint64) {
			vm.meta.put32(th.osThread+uint64(vm.OsThreadId),
				uint32(v))
		},
		"the JavaThread has no OSThread": func(v uint64) {
			vm.meta.put64(th.javaThread+uint64(vm.ThreadOs),
				v&^0xff<<32)
		},
		"there is no JavaThread any more": func(v uint64) { vm.meta.put64(th.javaThread, v) },
	} {
		vtable, os := vm.meta.word(th.javaThread), vm.meta.word(th.javaThread+uint64(vm.ThreadOs))
		spoil(0x1234)
		find(0, why)
		vm.meta.put64(th.javaThread, vtable)
		vm.meta.put64(th.javaThread+uint64(vm.ThreadOs), os)
		vm.meta.put32(th.osThread+uint64(vm.OsThreadId), th.ownTID)
		find(th.javaThread, "after "+why)
	}

	register = poison
	find(th.javaThread, "a stub has put the register to another use")
	register = 0
	known := th.javaThread
	th.javaThread = poison &^ 7
	w.know(t, th, th.born)
	elsewhere()
	find(0, "the table leads nowhere")
	register = known
	find(known, "but Java code knows better")
	register = 0
	find(known, "and that is remembered where it was seen")
	elsewhere()
	find(known, "and elsewhere")
	th.born++
	find(known, "what was learned now holds for all that began before")
	w.attach(t, vm)
	find(0, "attached anew")
}

// A compiler's thread is no JavaThread, whatever its register and the table say.
func TestKernelThreadByIDOfOtherClass(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[1])
	th := vm.newThreadByID(0)
	w.attach(t, vm)
	w.know(t, th, th.born)
	vm.meta.put64(th.javaThread, fakeVtable+0x100)
	if ret, out := w.run(t, w.Thread, th.addTo(WalkTestRequest{Pid: vm.pid(), Thread: th.javaThread})); ret != 1 {
		t.Errorf("returned %d, thread %#x; want none", ret, out.JavaThread)
	}
}

// A thread that was sampled in Java code has its Java callers when it is in native code later; one
// that nobody knows has not.
func TestKernelCallersByID(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[1])
	s := vm.newStack(t, 64<<10)
	th := vm.newThreadByID(s.mem.end())
	w.attach(t, vm)
	s.entry(anchor{}).compiled(vm.typical(64), 0x40)
	inJava, want := s.request(), s.want()
	inJava.Thread = th.javaThread
	th.enter(inNative, s.here())
	s.called(libc).seen(native(libc)) // no frame pointers

	compare(t, w.walk(t, th.addTo(s.request())), s.want()[:1], EndPointer)
	compare(t, w.walk(t, th.addTo(inJava)), want, EndRoot)
	got := w.walk(t, th.addTo(s.request()))
	compare(t, got, s.want(), EndRoot)
	if got.Flags != SampleAttached|SampleJavaThread|SampleJavaFrames {
		t.Errorf("flags %#x", got.Flags)
	}
}

// A thread that finds no room in the table is counted, and is known while it is in Java code all
// the same.
func TestKernelThreadsFull(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[1])
	th := vm.newThreadByID(0x7000)
	w.attach(t, vm)
	defer func() {
		for id := range uint32(MaxKnownThreads) {
			_ = w.KnownThreads.Delete(&KnownThreadKey{Pid: 1 << 30, OwnTid: id})
		}
	}()
	for id := range uint32(MaxKnownThreads) { // no process has that pid
		if err := w.KnownThreads.Put(&KnownThreadKey{Pid: 1 << 30, OwnTid: id}, &KnownThread{}); err != nil {
			break
		}
	}
	before := w.counter(t, ThreadsRefused)
	ret, out := w.run(t, w.Thread, th.addTo(WalkTestRequest{Pid: vm.pid(), Thread: th.javaThread}))
	if ret != 0 || out.JavaThread != th.javaThread {
		t.Errorf("returned %d, thread %#x", ret, out.JavaThread)
	}
	if n := w.counter(t, ThreadsRefused) - before; n != 1 {
		t.Errorf("counted %d times, want once", n)
	}
}

// A thread that ends is forgotten, whatever comes of its id. This one's id comes from the kernel.
func TestKernelThreadForgotten(t *testing.T) {
	o := load(t, Options{})
	l, err := link.AttachTracing(link.TracingOptions{Program: o.ProcessExit})
	needKernel(t, err)
	defer l.Close()
	pid := uint32(os.Getpid())
	if err := o.Processes.Put(pid, &HotspotProcess{Serial: 1, Flags: HotspotThreads}); err != nil {
		t.Fatal(err)
	}
	ended, stays := make(chan KnownThreadKey), KnownThreadKey{Pid: pid, OwnTid: 1 << 30}
	var thread func()
	thread = func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with this function, unless it is the first one
		if unix.Gettid() == os.Getpid() {
			go thread()
			<-t.Context().Done()
			return
		}
		ended <- KnownThreadKey{Pid: pid, OwnTid: uint32(unix.Gettid())}
		<-ended
	}
	go thread()
	key := <-ended
	for _, k := range []*KnownThreadKey{&key, &stays} {
		if err := o.KnownThreads.Put(k, &KnownThread{Serial: 1}); err != nil {
			t.Fatal(err)
		}
	}
	ended <- key
	waitFor(t, "its end to be noticed", func() bool { return o.KnownThreads.Lookup(&key, new(KnownThread)) != nil })
	if err := o.KnownThreads.Lookup(&stays, new(KnownThread)); err != nil {
		t.Errorf("another thread: %v", err)
	}
}
