package tests

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/cgroup"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// startNative starts a native program that knows how long it is off the CPU, and ends it with the
// test.
func startNative(t *testing.T) *events.Guest {
	t.Helper()
	needs.Root(t, "sampling")
	guest, err := events.StartNative(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() })
	return guest
}

// startBusy starts one of which a thread uses CPU all the time.
func startBusy(t *testing.T) *events.Guest {
	t.Helper()
	guest := startNative(t)
	if err := guest.KeepBusy(); err != nil {
		t.Fatal(err)
	}
	return guest
}

// recordWaits records all off-CPU time of a process while it works.
func recordWaits(t *testing.T, pid int, work func() error) []events.Row {
	t.Helper()
	recording, err := built.While(t.Context(), profiler.Options{PID: pid,
		Extra: []string{"-e", "offcpu", "--budget=50%"}},
		(*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error { return work() })
	if err != nil {
		t.Fatal(err)
	}
	return rowsOf(t, recording.Profile, "waits", "offcpu")
}

// workerRows are those of the goroutine that works, also in handlers of signals: its thread has
// others before and after.
func workerRows(rows []events.Row) []events.Row {
	return events.Where(rows, func(r events.Row) bool { return r.Has("main.execute.func1") })
}

// causeSum is the time of rows with one of the causes.
func causeSum(rows []events.Row, causes ...string) (sum time.Duration) {
	for _, cause := range causes {
		sum += time.Duration(events.Sum(events.Where(rows, func(r events.Row) bool { return r.Cause == cause }),
			offCPU))
	}
	return sum
}

// A thread that could run, but whose group has used up its quota, is throttled for as long as the
// kernel says, and throttled or runnable for as long as it says itself.
func TestRecordThrottled(t *testing.T) {
	guest := startNative(t)
	group := cgroup.New(t, cgroup.CPU)
	group.SetQuota(t, 30*time.Millisecond, 100*time.Millisecond)
	group.Add(t, guest.PID())
	var truth events.Truth
	var throttled time.Duration
	rows := workerRows(recordWaits(t, guest.PID(), func() (err error) {
		before := group.Throttled(t)
		truth, err = guest.RunNative("burn", 4000)
		throttled = group.Throttled(t) - before
		return err
	}))
	if len(truth.Away) != 1 || throttled == 0 {
		t.Fatalf("%+v, throttled for %v", truth, throttled)
	}
	got, all := causeSum(rows, "throttled"), causeSum(rows, "throttled", "runnable")
	of := time.Duration(events.Sum(rows, offCPU))
	t.Logf("throttled %v, in truth %v; runnable %v; in all %v, in truth %v", got, throttled, all-got, of,
		truth.Away[0].Sum)
	checkAway(t, "the thread", float64(of), truth.Away[0].Sum, float64(events.Count(rows)))
	if float64(all) < 0.95*float64(of) {
		t.Errorf("%v of %v were throttled or runnable", all, of)
		logRows(t, rows)
	}
	// It is runnable while others have the CPU, also when it is woken or moved while its group is
	// throttled. The kernel's time is the sum over CPUs, of all threads. On a busy machine the
	// thread waits for a CPU when its group may go on: the kernel does not say when that was.
	if float64(got) < 0.5*float64(throttled) {
		t.Errorf("%v of %v were throttled, in truth %v", got, all, throttled)
	}
}

// Threads of a JVM with a quota are off the CPU for as long as they say. What they wait for may
// take longer than what they know: the VM is throttled as well.
func TestRecordThrottledJVM(t *testing.T) {
	guest := startEvents(t, needs.JDK(t), events.Away)
	if _, err := guest.Run(1, 300); err != nil {
		t.Fatal(err)
	}
	group := cgroup.New(t, cgroup.CPU)
	group.SetQuota(t, 60*time.Millisecond, 100*time.Millisecond)
	group.Add(t, guest.PID())
	p, truth := recordEvents(t, guest, "offcpu", 1, 3000, "--budget=50%")
	rows := events.Own(rowsOf(t, p, "waits", "offcpu"))
	for _, away := range truth.Away {
		own := events.Where(rows, func(r events.Row) bool { return r.Has(away.Method) })
		t.Logf("%s: throttled %v, runnable %v, in all %v, in truth %v", away.Method, causeSum(own, "throttled"),
			causeSum(own, "runnable"),
			time.Duration(events.Sum(own, offCPU)), away.Sum)
		checkAway(t, away.Method, events.Sum(own, offCPU), away.Sum, float64(events.Count(own)))
		if away.Cause == "runnable" {
			delayed := causeSum(own, "throttled", "runnable")
			if causeSum(own, "throttled") == 0 || float64(delayed) < 0.95*events.Sum(own, offCPU) {
				t.Errorf("%s was throttled or runnable for %v", away.Method, delayed)
			}
		}
	}
}

// A stoppedTime is how long a process was stopped: from when that was seen, and from when it was
// ordered.
type stoppedTime struct{ least, most time.Duration }

// repeatStops stops a process again and again, and lets it go on: each time for longer than waits
// are of which only some are recorded, which on a busy machine is half a second.
func repeatStops(stop, goOn func()) (all stoppedTime) {
	const rounds, each = 2, 1500 * time.Millisecond
	for range rounds {
		begin := time.Now()
		stop()
		stopped := time.Now()
		time.Sleep(each) // It is the stop.
		end := time.Now()
		goOn()
		all.least += end.Sub(stopped)
		all.most += time.Since(begin)
		time.Sleep(each / 4) // The process runs for this long.
	}
	return all
}

// threadsOf are the threads of a process, with their states: R, S, T, …
func threadsOf(t *testing.T, pid int) map[int64]byte {
	t.Helper()
	states := map[int64]byte{}
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		tid, err := strconv.ParseInt(filepath.Base(path), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		// The name of a thread, in parentheses, may hold anything.
		text, err := os.ReadFile(path + "/stat")
		if at := strings.LastIndex(string(text), ") "); err == nil && at >= 0 && at+2 < len(text) {
			states[tid] = text[at+2]
		}
	}
	return states
}

// stopBySignal stops a process and waits until all of its threads have stopped.
func stopBySignal(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all threads have stopped", func() bool {
		for _, state := range threadsOf(t, pid) {
			if state != 'T' {
				return false
			}
		}
		return true
	})
}

// checkStopped fails unless each of the threads was stopped for that time, within 5 %. Those that
// are not exact may have been for longer.
func checkStopped(t *testing.T, threads map[int64][]events.Row, truth stoppedTime, exact func([]events.Row) bool) {
	t.Helper()
	least, most := time.Duration(0.95*float64(truth.least)), time.Duration(1.05*float64(truth.most))
	if len(threads) == 0 {
		t.Error("no thread was there all the time")
	}
	for tid, rows := range threads {
		got := causeSum(rows, "stopped")
		if got >= least && (got <= most || !exact(rows)) {
			continue
		}
		t.Errorf("thread %d was stopped for %v, in truth %v to %v", tid, got, truth.least, truth.most)
		logRows(t, rows)
	}
	t.Logf("%d threads, stopped for %v to %v", len(threads), truth.least, truth.most)
}

// recordStops records a process that is stopped again and again, and returns what each of its
// threads that lasted was off the CPU.
func recordStops(t *testing.T, pid int, stop, goOn func()) (threads map[int64][]events.Row, truth stoppedTime) {
	t.Helper()
	before, after := map[int64]byte{}, map[int64]byte{}
	rows := recordWaits(t, pid, func() error {
		before = threadsOf(t, pid)
		truth = repeatStops(stop, goOn)
		after = threadsOf(t, pid)
		return nil
	})
	threads = map[int64][]events.Row{}
	for tid := range before {
		if after[tid] != 0 {
			threads[tid] = events.Where(rows, func(r events.Row) bool { return r.TID == tid })
		}
	}
	return threads, truth
}

// Every thread of a process that is stopped by a signal is stopped, whatever it did before.
func TestRecordStopped(t *testing.T) {
	check := func(t *testing.T, pid int) {
		threads, truth := recordStops(t, pid, func() { stopBySignal(t, pid) }, func() {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		})
		checkStopped(t, threads, truth, func([]events.Row) bool { return true })
	}
	t.Run("native", func(t *testing.T) { check(t, startBusy(t).PID()) })
	t.Run("JVM", func(t *testing.T) { check(t, start(t, "Plain").PID()) })
}

// So is every thread of a frozen group. Version 1 leaves threads where they are that sleep: they
// wait for what they waited for.
func TestRecordFrozen(t *testing.T) {
	check := func(t *testing.T, c cgroup.Controller, pid int) {
		group := cgroup.New(t, c)
		group.Add(t, pid)
		threads, truth := recordStops(t, pid, func() { group.Freeze(t) }, func() { group.Thaw(t) })
		busy := func(rows []events.Row) bool {
			return slices.ContainsFunc(rows, func(r events.Row) bool { return r.Has("main.burn") || r.Has(heavy) })
		}
		if c == cgroup.Freezer {
			maps.DeleteFunc(threads, func(_ int64, rows []events.Row) bool { return !busy(rows) })
		}
		// At the recording's end other threads wait again, with the same registers as when they
		// were frozen: that seems to go on.
		checkStopped(t, threads, truth, busy)
	}
	t.Run("native", func(t *testing.T) { check(t, cgroup.Frozen, startBusy(t).PID()) })
	t.Run("JVM", func(t *testing.T) { check(t, cgroup.Frozen, start(t, "Plain").PID()) })
	t.Run("version 1", func(t *testing.T) {
		if _, err := os.Stat("/sys/fs/cgroup/freezer"); err != nil {
			t.Skip(err)
		}
		check(t, cgroup.Freezer, startBusy(t).PID())
	})
}

// A thread that touches memory which has to be read from a file waits for page faults, for as long
// as it says itself.
func TestRecordPageFaults(t *testing.T) {
	guest := startNative(t)
	path := storedFile(t, 8<<20)
	var truth events.Truth
	var waits int
	rows := workerRows(recordWaits(t, guest.PID(), func() (err error) {
		before := voluntarySwitches(t, guest.PID())
		truth, err = guest.RunNative("fault", 4000, path)
		waits = voluntarySwitches(t, guest.PID()) - before
		return err
	}))
	if len(truth.Away) != 1 {
		t.Fatalf("%+v", truth)
	}
	// Reading takes tens of thousands of waits. The clock of a thread's CPU time runs from the
	// moment when the scheduler has chosen it, some 5 us before the tracepoint at which its wait
	// ends: these are in both.
	const chosen = 10 * time.Microsecond
	away := &truth.Away[0]
	found := away.Find(rows, offCPU)
	if waits == 0 {
		t.Error("the kernel counted no waits")
	}
	if most := away.Sum + time.Duration(waits)*chosen; time.Duration(found.Time) > away.Sum &&
		time.Duration(found.Time) < most {
		away.Sum = time.Duration(found.Time)
	}
	checkWays(t, rows, truth)
}

// voluntarySwitches returns how often the threads that a process has now left a CPU to wait, by the
// kernel's count.
func voluntarySwitches(t *testing.T, pid int) (n int) {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, _ := os.ReadFile(path) // nothing of a thread that has ended
		_, count, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		var one int
		fmt.Sscan(count, &one)
		n += one
	}
	return n
}

// storedFile makes a file on storage, not in memory only.
func storedFile(t *testing.T, size int) string {
	t.Helper()
	const root = "/var/tmp" // The directory outlives the machine's end: it is on storage.
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		needs.Missing(t, fmt.Sprintf("%s is not on storage: %v", root, err))
	}
	file, err := os.CreateTemp(root, "vmprof-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file.Name()) })
	defer file.Close()
	content := make([]byte, size)
	rand.Read(content)
	if _, err = file.Write(content); err == nil {
		err = file.Sync() // pages that are not written yet cannot be evicted
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Name()
}
