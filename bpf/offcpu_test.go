//go:build linux

package bpf

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/cgroup"
)

// Waits are as long as they are, and have the whole stack of the thread. One that began before observation counts since then.
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
	if err := w.o.Pids.Put(uint32(child.Process.Pid), uint8(1)); err != nil { // as the program at fork does, which is not attached
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
	w := newWaitWatch(t, false)
	if err := w.Begin(time.Second); err != nil {
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

// Of a thread that runs when it is made known, the time from then on counts, whether it has left its CPU since or not.
func TestKernelTimeOnCPUFromNow(t *testing.T) {
	w := newWaitWatch(t, false)
	var used, from time.Duration
	stop, leave := make(chan struct{}), make(chan struct{})
	began := make(chan struct{}, 1)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	tid, end := onThread(t, func() {
		from = threadUsed(t)
		for done := false; !done; {
			select {
			case began <- struct{}{}:
			case <-stop:
				done = true
			default:
			}
		}
		used = threadUsed(t) - from
		close(leave)
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	<-began
	if err := w.Begin(time.Second); err != nil {
		t.Fatal(err)
	}
	// However busy the machine is, it runs now and then when it is looked at.
	waitFor(t, "the thread to run for 50 ms since it is known", func() bool {
		a := w.known(t)[tid]
		return a.Since == 0 && time.Duration(a.On) > 50*time.Millisecond
	})
	close(stop)
	<-leave
	waitFor(t, "the thread to read", func() bool { a := w.known(t)[tid]; return threadState(t, tid) == 'S' && a.Since != 0 })
	a := w.known(t)[tid]
	if on := time.Duration(a.On); on < 50*time.Millisecond || on > used+used/10 {
		t.Errorf("%v on the CPU, %v used", on, used)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-end
}

// However threads begin and end while others look, as many are counted as are followed: of this recording alone.
func TestKernelFollowedCount(t *testing.T) {
	w := takeWaitWatch(t, waitOptions{Options: Options{FilterByPID: true}})
	if err := w.o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.Begin(time.Second); err != nil {
			t.Fatal(err)
		}
		var ended atomic.Bool
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				for range 100 {
					_, end := onThread(t, func() {})
					<-end
				}
			})
		}
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			for !ended.Load() {
				w.known(t)
			}
		}()
		group.Wait()
		ended.Store(true)
		<-looked
		// A thread is counted until it has left its CPU for the last time, a moment after nobody sees it any more. Go may make others meanwhile.
		waitFor(t, "threads that have ended not to be counted", func() bool {
			before := w.counted(t)
			followed := uint32(len(w.known(t)))
			return before == followed && w.counted(t) == followed
		})
	}
}

// counted is how many threads are counted of this recording.
func (w *waitWatch) counted(t *testing.T) uint32 {
	t.Helper()
	var counts [2]uint32
	if err := w.objects.Followed.Get(&counts); err != nil {
		t.Fatal(err)
	}
	return counts[w.begun&1]
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
	t.Logf("%d waits seen, %d thinned, the interval is %v in the end; %v of %v, +- %v", seen, thinned, mean, sum, all, time.Duration(math.Sqrt(variance)))
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

// A thread that waits in a control group (version 2) which is frozen is stopped, though the kernel's state is that of a wait.
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
	waitFor(t, "the child to wait", is(AwayBlocked))
	group.Freeze(t)
	waitFor(t, "the child to be stopped", is(AwayStopped))
	group.Thaw(t)
	waitFor(t, "the child to wait again", is(AwayBlocked))
}

// Of threads that switch often, most waits are not followed, and sums stay right: those of long waits, too. Their time on a CPU is known all the same.
func TestKernelWaitsSkipped(t *testing.T) {
	w := newWaitWatch(t, false)
	const mean, every, rounds, short, long = time.Microsecond, 8, 100, 20, 2 * time.Millisecond
	if err := errors.Join(w.Begin(mean), w.Rotate(every)); err != nil {
		t.Fatal(err)
	}
	var took, used time.Duration
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	over := make(chan struct{})
	tid, end := onThread(t, func() {
		began, from := time.Now(), threadUsed(t)
		for range rounds {
			for range short {
				sleepFor(100 * time.Microsecond)
			}
			sleepFor(long)
		}
		took, used = time.Since(began), threadUsed(t)-from
		close(over)
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	<-over
	waitFor(t, "the thread to read", func() bool { return threadState(t, tid) == 'S' })
	on := time.Duration(w.known(t)[tid].On)
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-end
	w.balanced(t)
	c, err := w.o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	n := 0
	for _, s := range w.waits(t) {
		if s.tid != tid || time.Duration(s.length) > took {
			continue
		}
		if s.every != 1 && s.every != every {
			t.Errorf("%+v", s)
		}
		sum += s.length * time.Duration(s.every)
		n++
	}
	// As if all were drawn. What was drawn says less: there may be no long one among it.
	brief := float64(took-used-rounds*long) / (rounds * short)
	variance := (every - 1) * rounds * (float64(long)*float64(long) + short*brief*brief)
	t.Logf("%d records, %d waits skipped; %v +- %v of %v; %v on the CPU, %v used", n, c[WaitsSkipped], sum, time.Duration(math.Sqrt(variance)), took, on, used)
	if waits := rounds * (short + 1); c[WaitsSkipped] < uint64(waits)/2 || n > waits/2 {
		t.Errorf("%d waits are skipped, and %d recorded, of %d", c[WaitsSkipped], n, waits)
	}
	if allowed := time.Duration(4*math.Sqrt(variance)) + took/10; sum < took-used-allowed || sum > took+allowed {
		t.Errorf("the waits add up to %v, of %v", sum, took)
	}
	if on < used*9/10 || on > used+used/10+10*time.Millisecond {
		t.Errorf("%v on the CPU, %v used", on, used)
	}
	// In the next rotation waits are followed again, at first.
	if err := errors.Join(w.Begin(mean), w.Rotate(every)); err != nil {
		t.Fatal(err)
	}
	again, end := onThread(t, func() {
		for range 10 {
			sleepFor(100 * time.Microsecond)
		}
	})
	<-end
	w.balanced(t)
	n = 0
	for _, s := range w.waits(t) {
		if s.tid == again && s.state == AwayBlocked {
			n++
		}
	}
	if n < 10 {
		t.Errorf("%d of 10 waits are recorded", n)
	}
}

// What following takes of a switch: nothing is recorded, threads are not followed, all waits are, and only a sample of them.
func BenchmarkKernelSwitches(b *testing.B) {
	for _, bb := range []struct {
		name   string
		chosen bool
		mean   time.Duration
		every  uint32
	}{{"off", true, 0, 1}, {"unselected", false, MaxMeanInterval, 1}, {"followed", true, MaxMeanInterval, 1}, {"skipped", true, MaxMeanInterval, MaxFollowEvery}} {
		b.Run(bb.name, func(b *testing.B) {
			w := newWaitWatch(b, false)
			if !bb.chosen {
				if err := w.o.Pids.Delete(uint32(os.Getpid())); err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(w.Begin(bb.mean), w.Rotate(bb.every)); err != nil {
				b.Fatal(err)
			}
			var pipes [2][2]int
			for i := range pipes {
				if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
					b.Fatal(err)
				}
				defer unix.Close(pipes[i][0])
				defer unix.Close(pipes[i][1])
			}
			var used [2]time.Duration
			side := func(i int) func() {
				return func() {
					var one [1]byte
					var cpu unix.CPUSet
					cpu.Set(0)
					if err := unix.SchedSetaffinity(0, &cpu); err != nil {
						b.Error(err)
					}
					from := threadUsed(b)
					for range b.N {
						unix.Read(pipes[i][0], one[:])
						unix.Write(pipes[1-i][1], one[:])
					}
					used[i] = threadUsed(b) - from
				}
			}
			_, first := onThread(b, side(0))
			_, second := onThread(b, side(1))
			if _, err := unix.Write(pipes[0][1], []byte{1}); err != nil {
				b.Fatal(err)
			}
			<-first
			<-second
			b.ReportMetric(float64(used[0]+used[1])/float64(2*b.N), "cpu-ns/switch")
		})
	}
}
