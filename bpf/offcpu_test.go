//go:build linux

package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A waitWatch records the waits of this process.
type waitWatch struct {
	o *Objects
	*OffCPU
}

var waitWatches shelf[Options, *waitWatch]

func loadWaitWatch(opts Options) (*waitWatch, error) {
	o, err := loadMaps(opts)
	if err != nil {
		return nil, err
	}
	f, err := o.LoadOffCPU()
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &waitWatch{o, f}, nil
}

func newWaitWatch(t *testing.T) *waitWatch {
	t.Helper()
	w := takeWaitWatch(t, Options{})
	if err := w.o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	return w
}

func takeWaitWatch(t *testing.T, opt Options) *waitWatch {
	t.Helper()
	w := waitWatches.take(t, opt, loadWaitWatch)
	t.Cleanup(func() {
		if err := w.SetMean(0); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *waitWatch) maps() []*ebpf.Map {
	return append(mapsIn(w.o.ProfileMaps), w.objects.DrawnWaits, w.objects.Scratches)
}

func (w *waitWatch) Close() error { return errors.Join(w.OffCPU.Close(), w.o.Close()) }

// A seenWait is an Observation that outlives its record.
type seenWait struct {
	tid           uint32
	state         uint8
	length, delay time.Duration
	since         uint64
	user          []Frame
	kernel        int
	pc            uint64
}

func (w *waitWatch) waits(t *testing.T) (all []seenWait) {
	t.Helper()
	drain(t, w.o, func(raw []byte) {
		var o Observation
		if err := DecodeObservation(bytes.Clone(raw), &o); err != nil {
			t.Fatal(err)
		}
		v := o.Seen.Values
		if o.Kind != EventObserved || o.Pid != uint32(os.Getpid()) || o.Seen.What != ObservedWait || o.Seen.Probe != ProbeWait {
			t.Errorf("%+v of process %d", o.Seen, o.Pid)
		}
		all = append(all, seenWait{
			o.Tid, o.Seen.Flags, time.Duration(o.Time - v[WaitSince]), time.Duration(v[WaitDelay]), v[WaitSince], o.User, len(o.Kernel), v[WaitPC],
		})
	})
	return all
}

// balanced fails the test if waits are neither delivered nor thinned nor lost.
func (w *waitWatch) balanced(t *testing.T) (seen, thinned, delivered uint64) {
	t.Helper()
	if err := w.SetMean(0); err != nil {
		t.Fatal(err)
	}
	var c Counts
	var lost uint64
	waitFor(t, "records to be complete", func() (complete bool) {
		var err error
		if c, err = w.o.ReadCounts(); err != nil {
			t.Fatal(err)
		}
		lost = c[ObservationsDroppedRingFull] + c[ObservationsDroppedBusy]
		attempted := c[ObservationsAttempted]
		return attempted == c[ObservationsDelivered]+lost && attempted == c[WaitsSeen]-c[WaitsThinned]
	})
	seen, thinned, delivered = c[WaitsSeen], c[WaitsThinned], c[ObservationsDelivered]
	if drawn, dropped := c[NsWaitsDrawn], c[NsWaitsLost]; (drawn > 0) != (seen > thinned) || dropped > drawn || (dropped > 0) != (lost > 0) {
		t.Errorf("%d of %d ns lost, %d of %d records", dropped, drawn, lost, delivered+lost)
	}
	if seen != thinned+delivered+lost || c[ObservationsAttempted] != delivered+lost || c[WaitsRefused] != 0 {
		t.Errorf("%d waits seen, %d thinned, %d attempted, %d delivered, %d lost, %d refused",
			seen, thinned, c[ObservationsAttempted], delivered, lost, c[WaitsRefused])
	}
	return seen, thinned, delivered
}

// onThread runs do on a thread of its own, which ends with it, and returns its id.
func onThread(t *testing.T, do func()) (tid uint32, done <-chan struct{}) {
	t.Helper()
	ids, end := make(chan uint32, 1), make(chan struct{})
	var start func()
	start = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread does not end: another one is used while this has it
			defer runtime.UnlockOSThread()
			go start()
			<-end
			return
		}
		defer close(end)
		ids <- uint32(unix.Gettid())
		do()
	}
	go start()
	return <-ids, end
}

func sleepFor(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}

// Waits are as long as they are, and have the whole stack of the thread. One that began before observation counts since then.
func TestKernelWaits(t *testing.T) {
	w := newWaitWatch(t)
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
	if err := w.Begin(time.Duration(monotonic(t)), time.Millisecond); err != nil {
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
	var away Away
	if err := w.Threads(func(a *Away) {
		if a.Tid == reader {
			away = *a
		}
	}); err != nil {
		t.Fatal(err)
	}
	if away.Since == 0 || away.State != uint32(AwayBlocked) || away.Pid != uint32(os.Getpid()) || away.Start == 0 || away.Pc == 0 {
		t.Errorf("the thread that reads: %+v", away)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-readerEnds
	waitFor(t, "ended threads to be forgotten", func() bool {
		known := false
		if err := w.Threads(func(a *Away) { known = known || a.Tid == reader || a.Tid == sleeper }); err != nil {
			t.Fatal(err)
		}
		return !known
	})
	w.balanced(t)
	all := w.waits(t)
	find := func(tid uint32, long time.Duration) (found seenWait) {
		t.Helper()
		for _, s := range all {
			if s.tid == tid && s.length >= long && s.state == AwayBlocked {
				return s
			}
		}
		t.Fatalf("no wait of %v or longer among %+v", long, all)
		return
	}
	s := find(sleeper, length)
	if s.length > ended.Sub(began) {
		t.Errorf("a sleep of %v within %v: %+v", length, ended.Sub(began), s)
	}
	r := find(reader, length)
	if r.since != away.Since || r.pc != away.Pc {
		t.Errorf("the reader waited since %d at %#x, noted were %d and %#x", r.since, r.pc, away.Since, away.Pc)
	}
	for _, s := range []seenWait{s, r} {
		if len(s.user) < 3 || s.user[0] != Frame(uint64(FrameNative)<<60|s.pc) || s.kernel < 4 {
			t.Errorf("%d user frames, %d of the kernel, the first %v at %#x", len(s.user), s.kernel, s.user[:min(1, len(s.user))], s.pc)
		}
	}
}

// Threads of a process that is chosen later are followed from then on, and so are those that they make. A second recording knows nothing of
// the first one.
func TestKernelWaitsOfChosen(t *testing.T) {
	w := takeWaitWatch(t, Options{FilterByPID: true})
	known := func() map[uint32]Away {
		t.Helper()
		threads := map[uint32]Away{}
		if err := w.Threads(func(a *Away) { threads[a.Tid] = *a }); err != nil {
			t.Fatal(err)
		}
		return threads
	}
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
	first := uint64(monotonic(t))
	if err := w.Begin(time.Duration(first), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	sleepFor(2 * time.Millisecond)
	if threads := known(); len(threads) != 0 {
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
	if since := known()[reader].Since; since < chosen || since > uint64(monotonic(t)) {
		t.Errorf("the reader waits since %d, chosen at %d", since, chosen)
	}
	if err := w.SetMean(0); err != nil {
		t.Fatal(err)
	}
	w.waits(t)
	second := uint64(monotonic(t))
	if err := w.Begin(time.Duration(second), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if since := known()[reader].Since; since < second {
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
	if err := w.o.Pids.Put(uint32(child.Process.Pid), uint8(1)); err != nil { // as the program at fork does, which is not attached
		t.Fatal(err)
	}
	waitFor(t, "the child to sleep", func() bool { return known()[uint32(child.Process.Pid)].Since != 0 })
}

// A thread that could go on but has no CPU waits on the run queue for as long as it is away.
func TestKernelWaitsForCPU(t *testing.T) {
	w := newWaitWatch(t)
	if err := w.Begin(time.Duration(monotonic(t)), time.Millisecond/2); err != nil {
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
	const runs = 300 * time.Millisecond // of CPU time, each
	var tids []uint32
	var ends []<-chan struct{}
	for range 2 {
		tid, end := onThread(t, func() {
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Error(err)
			}
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
		if !slices.Contains(tids, s.tid) || s.state != AwayPreempted {
			continue
		}
		waited += s.length
		delayed += min(s.delay, s.length)
	}
	// One of the two always waits, until the first is done: for as long as it runs, if clocks are right. Those of emulated machines are not.
	if waited < runs/10 || delayed < waited/4 {
		t.Errorf("waited for %v, of that on the run queue %v", waited, delayed)
	}
}

// A thread's time on the CPU is its CPU time, whether others run in between or not.
func TestKernelTimeOnCPU(t *testing.T) {
	w := newWaitWatch(t)
	if err := w.Begin(time.Duration(monotonic(t)), time.Second); err != nil {
		t.Fatal(err)
	}
	const runs = 200 * time.Millisecond
	var used time.Duration
	over := make(chan struct{})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	tid, end := onThread(t, func() {
		begin := threadUsed(t) // others may have used the thread before
		for threadUsed(t)-begin < runs {
			for inner := threadUsed(t); threadUsed(t)-inner < runs/10; {
			}
			sleepFor(time.Millisecond)
		}
		used = threadUsed(t) - begin
		close(over)
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	<-over
	waitFor(t, "the thread to read", func() bool { return threadState(t, tid) == 'S' })
	var on time.Duration
	if err := w.Threads(func(a *Away) {
		if a.Tid == tid {
			on = time.Duration(a.On)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-end
	t.Logf("%v on the CPU, %v used", on, used)
	// A hypervisor may take the CPU away: that is time on it, and not used.
	if on < used*9/10 || on > 3*used {
		t.Errorf("%v on the CPU, %v used", on, used)
	}
}

// The sum of short waits is right though most are not recorded.
func TestKernelWaitsDrawn(t *testing.T) {
	w := newWaitWatch(t)
	const mean = 50 * time.Millisecond
	if err := w.Begin(time.Duration(monotonic(t)), mean); err != nil {
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

// threadUsed is the CPU time of the thread.
func threadUsed(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Error(err)
	}
	return time.Duration(ts.Nano())
}

// threadState is the kernel's letter for what a thread of this process does.
func threadState(t *testing.T, tid uint32) byte {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
	if err != nil {
		t.Fatal(err)
	}
	return stat[bytes.LastIndexByte(stat, ')')+2]
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
