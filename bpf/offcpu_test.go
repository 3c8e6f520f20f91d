//go:build linux

package bpf

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/cgroup"
)

// Waits are as long as they are, and have the whole stack of the thread. One that began before
// observation counts since then.
func TestKernelWaits(t *testing.T) {
	w := newWaitWatch(t, false)
	checkVerified(t, w.returns, w.objects.Switches, w.objects.Begins, w.objects.EachThread)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	begun := make(chan struct{})
	reader, readerEnds := onThread(t, func() { // blocked since before
		var b [1]byte
		close(begun)
		for {
			if _, err := unix.Read(pipe[0], b[:]); err != unix.EINTR {
				return
			}
		}
	})
	<-begun
	waitFor(t, "the reader to sleep", func() bool { return threadState(t, reader) == 'S' })
	if err := w.Begin(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var began, ended time.Time
	const length = 30 * time.Millisecond
	sleeper, sleeperEnds := onThread(t, func() {
		began = time.Now()
		sleepFor(length)
		ended = time.Now()
	})
	<-sleeperEnds
	var away OffCPUThread
	if err := w.Threads(func(a *OffCPUThread) {
		if a.Tid == reader {
			away = *a
		}
	}); err != nil {
		t.Fatal(err)
	}
	if away.Since == 0 || away.State != uint32(OffCPUBlocked) || away.Pid != uint32(os.Getpid()) || away.Start == 0 ||
		away.Pc == 0 {
		t.Errorf("the thread that reads: %+v", away)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-readerEnds
	waitFor(t, "ended threads to be forgotten", func() bool {
		known := false
		if err := w.Threads(func(a *OffCPUThread) { known = known || a.Tid == reader || a.Tid == sleeper }); err != nil {
			t.Fatal(err)
		}
		return !known
	})
	w.balanced(t)
	all := w.waits(t)
	find := func(tid uint32, long time.Duration) (found seenWait) {
		t.Helper()
		for _, s := range all {
			if s.tid == tid && s.length >= long && s.state == OffCPUBlocked {
				return s
			}
		}
		t.Fatalf("no wait of thread %d of %v or longer among %+v", tid, long, all)
		return
	}
	// the timer runs before the thread has left its CPU, which takes a while on a busy machine
	s := find(sleeper, length/2)
	if s.length > ended.Sub(began) {
		t.Errorf("a sleep of %v within %v: %+v", length, ended.Sub(began), s)
	}
	r := find(reader, length)
	if r.since != away.Since || r.pc != away.Pc {
		t.Errorf("the reader waited since %d at %#x, noted were %d and %#x", r.since, r.pc, away.Since, away.Pc)
	}
	for _, s := range []seenWait{s, r} {
		if len(s.user) < 3 || s.user[0] != Frame(uint64(FrameNative)<<60|s.pc) || s.kernel < 4 {
			t.Errorf("%d user frames, %d of the kernel, the first %v at %#x", len(s.user), s.kernel,
				s.user[:min(1, len(s.user))], s.pc)
		}
	}
}

// Threads of a process that is chosen later are followed from then on, and so are those that they
// make. A second recording knows nothing of the first one.
func TestKernelWaitsOfChosen(t *testing.T) {
	w := takeWaitWatch(t, waitOptions{Options: Options{FilterByPID: true}})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	reader, readerEnds := onThread(t, func() {
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	waitFor(t, "the reader to sleep", func() bool { return threadState(t, reader) == 'S' })
	// A process that is chosen before the recording begins must not keep its threads out of it.
	if err := errors.Join(w.o.Pids.Put(uint32(os.Getpid()), uint8(1)), w.Follow(),
		w.o.Pids.Delete(uint32(os.Getpid()))); err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	sleepFor(2 * time.Millisecond)
	if threads := w.known(t); len(threads) != 0 {
		t.Errorf("%d threads are followed of no process", len(threads))
	}
	if seen, _, _ := w.balanced(t); seen != 0 {
		t.Errorf("%d waits seen of no process", seen)
	}
	chosen := uint64(monotonic(t))
	if err := w.o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	if err := w.SetMean(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := w.Follow(); err != nil {
		t.Fatal(err)
	}
	if since := w.known(t)[reader].Since; since < chosen || since > uint64(monotonic(t)) {
		t.Errorf("the reader waits since %d, chosen at %d", since, chosen)
	}
	if err := w.SetMean(0); err != nil {
		t.Fatal(err)
	}
	w.waits(t)
	second := uint64(monotonic(t))
	if err := w.Begin(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if since := w.known(t)[reader].Since; since < second {
		t.Errorf("the reader waits since %d, the second recording began at %d", since, second)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-readerEnds
	w.balanced(t)
	for _, s := range w.waits(t) {
		if s.since < second {
			t.Errorf("a wait since %d, the recording began at %d: %+v", s.since, second, s)
		}
	}
	if err := w.SetMean(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Logf("no child is followed: %v", err) // in an emulator
		return
	}
	defer func() {
		child.Process.Kill()
		child.Wait()
	}()
	// The program at fork does this, but it is not attached.
	if err := w.o.Pids.Put(uint32(child.Process.Pid), uint8(1)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child to sleep", func() bool { return w.known(t)[uint32(child.Process.Pid)].Since != 0 })
}

// A thread that could go on but has no CPU waits on the run queue for as long as it is away.
func TestKernelWaitsForCPU(t *testing.T) {
	w := newWaitWatch(t, false)
	if err := w.Begin(time.Millisecond / 2); err != nil {
		t.Fatal(err)
	}
	var one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	for cpu := range 64 {
		if one.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
			break
		}
	}
	const runs = 300 * time.Millisecond // CPU time of each run
	var tids []uint32
	var ends []<-chan struct{}
	var both sync.WaitGroup // neither is done before the other begins
	both.Add(2)
	for range 2 {
		tid, end := onThread(t, func() {
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Error(err)
			}
			both.Done()
			both.Wait()
			for begin := threadUsed(t); threadUsed(t)-begin < runs; {
			}
		})
		tids, ends = append(tids, tid), append(ends, end)
	}
	for _, end := range ends {
		<-end
	}
	w.balanced(t)
	var waited, delayed time.Duration
	for _, s := range w.waits(t) {
		if !slices.Contains(tids, s.tid) || s.state != OffCPUPreempted {
			continue
		}
		waited += s.length
		delayed += min(s.delay, s.length)
	}
	// One of the two always waits, until the first is done: for as long as it runs, if clocks are
	// right. Those of emulated machines are not.
	if waited < runs/10 || delayed < waited/4 {
		t.Errorf("waited for %v, of that on the run queue %v", waited, delayed)
	}
}

// The sum of short waits is right though most are not recorded.
func TestKernelWaitsDrawn(t *testing.T) {
	w := newWaitWatch(t, false)
	const mean = 50 * time.Millisecond
	if err := w.Begin(mean); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	const waits = 1000
	tid, end := onThread(t, func() {
		began := time.Now()
		for range waits {
			sleepFor(time.Millisecond)
		}
		took = time.Since(began)
	})
	<-end
	seen, thinned, _ := w.balanced(t)
	if seen < waits || thinned == 0 {
		t.Errorf("%d waits seen, %d thinned", seen, thinned)
	}
	var sum time.Duration
	n := 0
	for _, s := range w.waits(t) {
		if s.tid == tid {
			sum += max(s.length, mean)
			n++
		}
	}
	t.Logf("%v from %d records, of %v", sum, n, took)
	// About 20 records or more: 6 standard deviations of a Poisson number.
	if sum < took/10 || sum > took*5/2 {
		t.Errorf("the waits add up to %v by %d records, the thread was away for most of %v", sum, n, took)
	}
}

// Where more waits are recorded than are paid for, T rises by itself, and sums stay right.
func TestKernelWaitsUnpaid(t *testing.T) {
	w := newWaitWatch(t, false)
	const first, pause, waits, threads = time.Millisecond, 5 * time.Millisecond, 250, 4
	if err := w.SetPause(pause); err != nil {
		t.Fatal(err)
	}
	if err := w.Begin(first); err != nil {
		t.Fatal(err)
	}
	var took [threads]time.Duration
	var tids []uint32
	var ends []<-chan struct{}
	for i := range threads {
		tid, end := onThread(t, func() {
			began := time.Now()
			for range waits {
				sleepFor(2 * time.Millisecond)
			}
			took[i] = time.Since(began)
		})
		tids, ends = append(tids, tid), append(ends, end)
	}
	for _, end := range ends {
		<-end
	}
	mean, err := w.Mean()
	if err != nil {
		t.Fatal(err)
	}
	seen, thinned, _ := w.balanced(t)
	var sum, all time.Duration
	variance := 0.0
	for _, s := range w.waits(t) {
		if !slices.Contains(tids, s.tid) {
			continue
		}
		worth := max(s.length, time.Duration(s.mean))
		sum += worth
		if s.length < time.Duration(s.mean) {
			variance += float64(worth) * float64(worth)
		}
	}
	for _, d := range took {
		all += d
	}
	t.Logf("%d waits seen, %d thinned, the interval is %v in the end; %v of %v, +- %v", seen, thinned, mean, sum, all,
		time.Duration(math.Sqrt(variance)))
	if mean <= first || thinned == 0 {
		t.Errorf("the interval is %v in the end, %d of %d waits are thinned", mean, thinned, seen)
	}
	// Most of the time they sleep.
	if allowed := time.Duration(6*math.Sqrt(variance)) + all/10; sum > all+allowed || sum < all-all/4-allowed {
		t.Errorf("the waits add up to %v, the threads were away for most of %v", sum, all)
	}
	if err := w.SetMean(first); err != nil {
		t.Fatal(err)
	}
	if mean, err := w.Mean(); err != nil || mean != first {
		t.Errorf("%v, %v", mean, err)
	}
}

// A thread that waits in a control group (version 2) which is frozen is stopped, though the
// kernel's state is that of a wait.
func TestKernelFrozen(t *testing.T) {
	w := takeWaitWatch(t, waitOptions{Options: Options{FilterByPID: true}})
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip(err) // in an emulator
	}
	defer func() {
		child.Process.Kill()
		child.Wait()
	}()
	pid := uint32(child.Process.Pid)
	group := cgroup.New(t, cgroup.Frozen)
	if err := w.o.Pids.Put(pid, uint8(1)); err != nil {
		t.Fatal(err)
	}
	group.Add(t, child.Process.Pid)
	if err := w.Begin(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	is := func(state uint8) func() bool {
		return func() bool { a := w.known(t)[pid]; return a.Since != 0 && a.State == uint32(state) }
	}
	waitFor(t, "the child to wait", is(OffCPUBlocked))
	group.Freeze(t)
	waitFor(t, "the child to be stopped", is(OffCPUStopped))
	group.Thaw(t)
	waitFor(t, "the child to wait again", is(OffCPUBlocked))
}
