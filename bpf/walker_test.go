//go:build linux && amd64

package bpf

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A walker runs parts of the kernel side against this process's memory (walk_test.bpf.c).
type walker struct{ WalkTestObjects }

// Verifying the programs is most of a test's time, under emulation seconds: all tests share one
// copy. They do not meet, since every fakeVM has its own serial, and all caches go by that.
var loadWalker = sync.OnceValues(func() (*walker, error) {
	spec, err := LoadWalkTest()
	if err != nil {
		return nil, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	spec.Maps["scratches"].MaxEntries = uint32(cpus)
	if err := spec.Variables["walk_ns"].Set(uint64(math.MaxUint32)); err != nil { // an emulated CPU is slow
		return nil, err
	}
	w := &walker{}
	return w, spec.LoadAndAssign(&w.WalkTestObjects, nil)
})

func newWalker(t testing.TB) *walker {
	t.Helper()
	w, err := loadWalker()
	needKernel(t, err)
	return w
}

var lastSerial atomic.Uint32

// attach makes vm known to the kernel side, under a new serial.
func (w *walker) attach(t testing.TB, vm *fakeVM) {
	t.Helper()
	vm.Serial = lastSerial.Add(1)
	vm.Slot = vm.Serial % MaxAttached
	w.setEpochs(t, vm, ProfileEpochs{})
	w.update(t, vm)
	t.Cleanup(func() { _ = w.Processes.Delete(vm.pid()) })
}

func (w *walker) update(t testing.TB, vm *fakeVM) {
	t.Helper()
	if err := w.Processes.Put(vm.pid(), &vm.HotspotProcess); err != nil {
		t.Fatal(err)
	}
}

func (w *walker) setEpochs(t testing.TB, vm *fakeVM, e ProfileEpochs) {
	t.Helper()
	if err := w.Epochs.Put(vm.Slot, &e); err != nil {
		t.Fatal(err)
	}
}

// run runs one of the programs and returns its answer and what it made of the request.
func (w *walker) run(t testing.TB, p *ebpf.Program, r WalkTestRequest) (int32, WalkTestRequest) {
	t.Helper()
	var out WalkTestRequest
	ret, err := p.Run(&ebpf.RunOptions{Context: &r, ContextOut: &out})
	if err != nil {
		t.Fatalf("run %v: %v", p, err)
	}
	return int32(ret), out
}

// walk walks the stack that r's registers describe.
func (w *walker) walk(t testing.TB, r WalkTestRequest) Sample {
	t.Helper()
	var s Sample
	w.walkInto(t, r, &s)
	return s
}

// walkInto is walk; it returns how long the walk took in the kernel, in ns.
func (w *walker) walkInto(t testing.TB, r WalkTestRequest, s *Sample) uint64 {
	t.Helper()
	ret, out := w.run(t, w.Walk, r)
	if ret != 0 {
		t.Fatalf("walk returned %d", ret)
	}
	raw, err := w.Samples.LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := DecodeSample(raw, s); err != nil {
		t.Fatal(err)
	}
	return out.Ns
}

// counter is the sum over all CPUs.
func (w *walker) counter(t testing.TB, c Counter) (sum uint64) {
	t.Helper()
	var perCPU []uint64
	if err := w.Counters.Lookup(uint32(c), &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum
}

// pinned keeps the test on one CPU: caches are per CPU.
func pinned(t testing.TB) {
	t.Helper()
	var before, one unix.CPUSet
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range int(unsafe.Sizeof(before)) * 8 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	})
}
