//go:build linux

package breakpoint

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// What the breakpoints below are on. Without a check of the stack's size the first instruction is
// executed once a call.
//
//go:nosplit
//go:noinline
func placeA() {}

//go:nosplit
//go:noinline
func placeB() {}

//go:nosplit
//go:noinline
func placeC() {}

//go:nosplit
//go:noinline
func placeD() {}

func address(f func()) uint64 { return uint64(reflect.ValueOf(f).Pointer()) }

// A hitCounter is a program that counts its runs, in total.
type hitCounter struct {
	prog *ebpf.Program
	runs *ebpf.Map
}

func newHitCounter(t testing.TB) *hitCounter {
	t.Helper()
	runs, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	needPrivilege(t, err)
	t.Cleanup(func() { runs.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.PerfEvent, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, runs.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("end"),
			asm.Return(),
		}})
	needPrivilege(t, err)
	t.Cleanup(func() { prog.Close() })
	return &hitCounter{prog, runs}
}

// take returns the runs since the last take.
func (h *hitCounter) take(t testing.TB) (n int) {
	t.Helper()
	var v uint64
	if err := h.runs.Lookup(uint32(0), &v); err != nil {
		t.Fatal(err)
	}
	if err := h.runs.Put(uint32(0), uint64(0)); err != nil {
		t.Fatal(err)
	}
	return int(v)
}

func needPrivilege(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getuid() != 0 && os.Getenv("CI") == "" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	t.Fatal(err)
}

func open(t testing.TB, h *hitCounter, addresses []uint64, tids []int, limit int) *Set {
	t.Helper()
	b, err := NewSet(h.prog, addresses, tids, limit)
	needPrivilege(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// ownThread keeps the test on one thread, whose id it returns.
func ownThread(t testing.TB) []int {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return []int{unix.Gettid()}
}

func TestKernelBreakpointHits(t *testing.T) {
	h := newHitCounter(t)
	own := ownThread(t)
	b := open(t, h, []uint64{address(placeA), address(placeB), address(placeC)}, own, 100)
	call := func() {
		for range 5 {
			placeA()
			placeB()
			placeB()
			placeC()
			placeD()
		}
	}
	call()
	if n := h.take(t); n != 0 {
		t.Errorf("%d hits before Arm", n)
	}
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}
	call()
	if n := h.take(t); n != 20 {
		t.Errorf("%d hits, want 20", n)
	}
	if err := b.Disarm(); err != nil {
		t.Fatal(err)
	}
	call()
	if n := h.take(t); n != 0 {
		t.Errorf("%d hits after Disarm", n)
	}
	if ran, err := b.Ran(); err != nil || ran <= 0 {
		t.Errorf("ran %v, %v", ran, err)
	}
}

// If its owner hangs, a window ends by itself, for each address separately.
func TestKernelBreakpointLimit(t *testing.T) {
	h := newHitCounter(t)
	own := ownThread(t)
	b := open(t, h, []uint64{address(placeA), address(placeB)}, own, 7)
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		placeB()
	}
	if n := h.take(t); n < 7 || n > 8 {
		t.Errorf("%d hits of a member, want the limit of 7", n)
	}
	for range 1000 {
		placeA()
	}
	if n := h.take(t); n < 7 || n > 8 {
		t.Errorf("%d hits of the leader, want the limit of 7", n)
	}
}

// The reason why breakpoints are not inherited by threads that begin later: their hits would have
// no limit.
func TestKernelInheritedBreakpointsHaveNoLimit(t *testing.T) {
	own := ownThread(t)
	attr := event(address(placeA), true)
	attr.Bits |= unix.PerfBitInherit
	fd, err := unix.PerfEventOpen(attr, own[0], -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	needPrivilege(t, err)
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_REFRESH, 5); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a limit on an inherited event: %v, want EINVAL", err)
	}
}

// A thread runs f until it is stopped.
func startThread(t testing.TB, f func()) (tid int) {
	t.Helper()
	started := make(chan int)
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: so the thread ends with the goroutine
		defer close(ended)
		started <- unix.Gettid()
		for !stop.Load() {
			f()
		}
	}()
	t.Cleanup(func() {
		stop.Store(true)
		<-ended
	})
	return <-started
}

// On real processors only: an emulator may lose most hits of a thread.
func TestLiveBreakpointThreads(t *testing.T) {
	h := newHitCounter(t)
	tids := []int{startThread(t, placeA), startThread(t, placeA), startThread(t, placeA)}
	// Two of three, and one that does not exist: tids end at 4 Mi.
	b := open(t, h, []uint64{address(placeA)}, []int{tids[0], 1 << 23, tids[2]}, 50)
	if b.Threads() != 2 || b.Gone != 1 || b.Busy != 0 {
		t.Errorf("%d threads, %d gone, %d busy", b.Threads(), b.Gone, b.Busy)
	}
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}
	for n, begin := 0, time.Now(); n <= 50; n += h.take(t) { // more than a single thread may have
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d hits in a minute, want more than one thread may have", n)
		}
		runtime.Gosched()
	}
	if _, err := NewSet(h.prog, []uint64{address(placeA)}, []int{1 << 23}, 50); !errors.Is(err,
		ErrThreadsGone) {
		t.Errorf("a thread that does not exist: %v", err)
	}
}

// Others may use the debug registers: such threads are left out.
func TestKernelBreakpointsBusy(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("debug registers are counted on x86-64: others have more of them")
	}
	h := newHitCounter(t)
	own := ownThread(t)
	other := startThread(t, runtime.Gosched)
	debugger := open(t, h, []uint64{address(placeA), address(placeB)}, own, 5)
	three := []uint64{address(placeA), address(placeB), address(placeC)}
	if _, err := NewSet(h.prog, three, own, 5); !errors.Is(err, ErrBusy) {
		t.Errorf("with two free registers: %v", err)
	}
	b := open(t, h, three, []int{own[0], other}, 5)
	if b.Busy != 1 || b.Threads() != 1 {
		t.Errorf("%d busy, %d threads", b.Busy, b.Threads())
	}
	debugger.Close()
	all := open(t, h, three, own, 5)
	last := open(t, h, []uint64{address(placeD)}, own, 5) // the one left for debuggers
	if all.Threads() != 1 || last.Threads() != 1 {
		t.Error("registers were not given back")
	}
}

func TestBreakpointArguments(t *testing.T) {
	for name, c := range map[string]struct {
		addresses, tids, limit int
	}{
		"no address": {0, 1, 1}, "four": {4, 1, 1}, "too many threads": {1, 257, 1}, "no hits": {1, 1, 0},
		"too many hits": {1, 1, 1 << 13},
	} {
		if _, err := NewSet(nil, make([]uint64, c.addresses), make([]int, c.tids), c.limit); !errors.Is(err,
			unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error for too few descriptors names the remedy, and no descriptor is leaked.
func TestKernelBreakpointDescriptors(t *testing.T) {
	h := newHitCounter(t)
	own := ownThread(t)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	next, err := unix.Dup(2) // the lowest free descriptor
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	_, err = NewSet(h.prog, []uint64{address(placeA), address(placeB)}, own, 5)
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("with one descriptor: %v", err)
	}
	open(t, h, []uint64{address(placeC)}, own, 5) // the one is free again
}

const armedChild = "VMPROF_ATTACH_TEST_ARMED_CHILD"

// TestArmedChild is not a test but the child process of the test below: it sets breakpoints in the
// given thread, reports that, and waits to be killed.
func TestArmedChild(t *testing.T) {
	tid, err := strconv.Atoi(os.Getenv(armedChild))
	if err != nil {
		return
	}
	h := newHitCounter(t)
	b, err := NewSet(h.prog, []uint64{address(placeA), address(placeB), address(placeC)}, []int{tid}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Arm(); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("armed\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// An agent that is killed in the middle of a window leaves no breakpoint.
func TestKernelBreakpointsOfAKilledAgent(t *testing.T) {
	h := newHitCounter(t)
	own := ownThread(t)
	agent := exec.Command("/proc/self/exe", "-test.run=^TestArmedChild$")
	agent.Env = append(os.Environ(), armedChild+"="+strconv.Itoa(own[0]))
	stdin, err := agent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil && line != "armed\n" {
		err = errors.New(line)
	}
	three := []uint64{address(placeA), address(placeB), address(placeC)}
	if err == nil {
		_, busy := NewSet(h.prog, three, own, 5)
		if !errors.Is(busy, ErrBusy) && runtime.GOARCH == "amd64" {
			t.Errorf("while the child has three: %v", busy)
		}
	}
	agent.Process.Kill()
	_ = agent.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, h, three, own, 5)
	last := open(t, h, []uint64{address(placeD)}, own, 5)
	if err := errors.Join(b.Arm(), last.Arm()); err != nil {
		t.Fatal(err)
	}
	placeA()
	placeB()
	placeC()
	placeD()
	if n := h.take(t); n != 4 {
		t.Errorf("%d hits of four breakpoints after the kill, want 4", n)
	}
}

func BenchmarkBreakpoints(b *testing.B) {
	h := newHitCounter(b)
	tids := []int{startThread(b, placeD)}
	three := []uint64{address(placeA), address(placeB), address(placeC)}
	b.Run("open, arm and close three", func(b *testing.B) {
		for b.Loop() {
			w, err := NewSet(h.prog, three, tids, 10)
			if err != nil {
				b.Fatal(err)
			}
			if err := w.Arm(); err != nil {
				b.Fatal(err)
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hit", func(b *testing.B) {
		own := ownThread(b)
		for b.Loop() {
			b.StopTimer()
			w, err := NewSet(h.prog, three, own, MaxHits)
			if err != nil {
				b.Fatal(err)
			}
			if err := w.Arm(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			for range 1000 {
				placeA()
			}
			b.StopTimer()
			w.Close()
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/hit")
	})
}
