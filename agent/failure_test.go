package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// faultyAgent is an agent without a kernel side that panics at one stage of one process, and what it logs.
func faultyAgent(t *testing.T, at stage, pid int) (*Agent, *Window, *bytes.Buffer) {
	t.Helper()
	a, w := testAgent()
	var log bytes.Buffer
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	a.root, a.pool = proc.Root(t.TempDir()), proc.NewPool(proc.PoolOptions{})
	a.images = a.newImages(a.pool)
	t.Cleanup(a.images.Close)
	a.fault = func(s stage, of int) {
		if s == at && of == pid {
			panic("hostile")
		}
	}
	a.names = newNames(2, a.work)
	t.Cleanup(a.names.close)
	return a, w, &log
}

// sampled is a process with a frame to be named.
func sampled(a *Agent, pid uint32) *process {
	a.handle(sampleRecord(identity{pid, 5_000_000_123, 1}, 0x1000))
	return a.table[int(pid)]
}

const waitLong = time.Minute

// TestWorkerPanics: a panic of a naming worker costs the process its names for a while. The worker goes on, others get their
// names, and nobody waits for an answer that does not come.
func TestWorkerPanics(t *testing.T) {
	for _, at := range []stage{stageAttach, stageNames, stageJobs} {
		t.Run(string(at), func(t *testing.T) {
			a, _, log := faultyAgent(t, at, 1)
			bad, good := sampled(a, 1), sampled(a, 2)
			for range 10 { // more often than there are workers
				a.names.submit(bad.targetProcess)
				a.names.submit(good.targetProcess)
				a.names.wait(t.Context(), targetProcesses([]*process{bad, good}), waitLong)
			}
			if n := a.panics.all()[string(at)]; n != 1 {
				t.Errorf("%d failures are counted, want one: %v", n, a.panics.all())
			}
			if n := strings.Count(log.String(), "stack="); n != 1 || !strings.Contains(log.String(), "failure_test.go") {
				t.Errorf("logged %d times:\n%s", n, log)
			}
			if len(bad.notes) != 1 || !strings.Contains(bad.notes[0], string(at)) || len(good.notes) != 0 {
				t.Errorf("notes %q and %q", bad.notes, good.notes)
			}
			for _, p := range []*process{bad, good} {
				if len(p.wanted) != 0 || len(p.names) != 1 {
					t.Errorf("process %d: %d frames wait, %d have names", p.pid, len(p.wanted), len(p.names))
				}
			}
			// Jobs are answered, those of a process that is left alone with an error.
			if err := a.withWorker(t.Context(), bad.targetProcess, func() error { return nil }); !errors.Is(err, errFailed) {
				t.Errorf("job of the process that is left alone: %v", err)
			}
			if err := a.withWorker(t.Context(), good.targetProcess, func() error { return nil }); err != nil {
				t.Errorf("job of another one: %v", err)
			}
		})
	}
}

// TestFailureAgain: a process is tried again later, when it is sampled, and less often every time. Then its frames get their
// names.
func TestFailureAgain(t *testing.T) {
	a, _, _ := faultyAgent(t, stageNames, 1)
	p := sampled(a, 1)
	pause := time.Duration(0)
	for range 3 {
		a.names.submit(p.targetProcess)
		a.names.wait(t.Context(), targetProcesses([]*process{p}), waitLong)
		left := p.work.failure.until - proc.Monotonic()
		if left <= pause || left > longestFailure {
			t.Fatalf("left alone for %v after %v", left, pause)
		}
		pause = left
		if at := time.Duration(p.retry.Load()); at != p.work.failure.until {
			t.Errorf("samples lead to an attempt at %v, want %v", at, p.work.failure.until)
		}
		p.work.failure.until = proc.Monotonic() // it is over
	}
	named := a.lookups.Load()
	a.fault = nil
	a.names.submit(p.targetProcess)
	a.names.wait(t.Context(), targetProcesses([]*process{p}), waitLong)
	if n := a.lookups.Load() - named; n != 1 || p.work.failure.until != 0 || len(p.work.failure.lost) != 0 {
		t.Errorf("%d frames were looked up, %d are left; left alone until %v", n, len(p.work.failure.lost), p.work.failure.until)
	}
}

// TestJobPanics: whoever wants something of a process hears of the panic, and so do those who wait behind.
func TestJobPanics(t *testing.T) {
	a, _, _ := faultyAgent(t, "", 0)
	p := sampled(a, 1)
	var jobs []job
	for _, do := range []func() error{
		func() error { return nil }, func() error { panic("hostile") }, func() error { return nil },
	} {
		jobs = append(jobs, job{context.Background(), do, make(chan error, 1)})
	}
	p.jobs = slices.Clone(jobs)
	a.names.submit(p.targetProcess)
	a.names.wait(t.Context(), targetProcesses([]*process{p}), waitLong)
	if err := <-jobs[0].done; err != nil {
		t.Errorf("the job before: %v", err)
	}
	for _, j := range jobs[1:] {
		var panicked *proc.PanicError
		if err := <-j.done; !errors.As(err, &panicked) {
			t.Errorf("got %v", err)
		}
	}
	if n := a.panics.all()[string(stageJobs)]; n != 1 {
		t.Errorf("%d failures are counted", n)
	}
}

// TestPoolPanics: what panics in the pool, for a worker, panics in the worker.
func TestPoolPanics(t *testing.T) {
	a, _, _ := faultyAgent(t, "", 0)
	p := sampled(a, 1)
	err := a.withWorker(t.Context(), p.targetProcess, func() error {
		_, err := callFor(a.targets, p.targetProcess, func() (int, error) { panic("hostile") })
		return err
	})
	var panicked *proc.PanicError
	if !errors.As(err, &panicked) || panicked.Value != "hostile" {
		t.Errorf("got %v", err)
	}
}

// TestAttachPanics: a library over which the agent panics is given up, and what was reserved for the VM is given back.
func TestAttachPanics(t *testing.T) {
	a, p, lib := fakeGuest(t, func(vmruntime.Target) (vmruntime.Process, error) { panic("hostile") })
	var panicked *proc.PanicError
	if err := proc.Catch(func() error { a.attachGuest(p.targetProcess, lib); return nil }); !errors.As(err, &panicked) {
		t.Fatalf("got %v", err)
	}
	if a.attached != 0 || len(a.slots) != 1 || p.attachment.Load() != 0 {
		t.Errorf("%d attached, %d slots, attachment %d", a.attached, len(a.slots), p.attachment.Load())
	}
}

// TestRecordPanics: a record over which the drainer panics is discarded, with an account that holds. Others are folded.
func TestRecordPanics(t *testing.T) {
	a, w, log := faultyAgent(t, stageRecord, 1)
	for range 5 {
		a.receive(sampleRecord(identity{1, 5_000_000_123, 1}, 0x1000))
		a.receive(sampleRecord(identity{2, 5_000_000_123, 1}, 0x1000))
	}
	if !a.mu.TryLock() {
		t.Fatal("the agent's lock is held")
	}
	if r := a.received; r.samples != 10 || r.folded != 5 || a.discarded[profile.Failed] != 5 {
		t.Errorf("received %+v, discarded %v", r, a.discarded)
	}
	if w.received != w.folded+profile.Sum(w.discarded) || w.folded != 5 {
		t.Errorf("window: received %d, folded %d, discarded %v", w.received, w.folded, w.discarded)
	}
	if n := a.panics.all()[string(stageRecord)]; n != 5 || strings.Count(log.String(), "stack=") != 1 {
		t.Errorf("%d failures are counted:\n%s", n, log)
	}
	a.mu.Unlock()
	// A record that is of no process.
	a.fault = func(stage, int) { panic("hostile") }
	a.receive(sampleRecord(identity{3, 5_000_000_123, 1}, 0x1000)[:8])
}

// TestWindowPanics: a process whose part of the profile cannot be made has none, and its samples count as discarded.
func TestWindowPanics(t *testing.T) {
	a, w, _ := faultyAgent(t, stageWindow, 1)
	bad, good := sampled(a, 1), sampled(a, 2)
	counts := profile.Counts{Folded: 2, Discarded: noDiscards(), Truncated: map[string]uint64{}}
	if p := w.profileOf(bad, &counts); len(p.Threads) != 0 || len(p.Notes) != 1 {
		t.Errorf("%d threads, notes %q", len(p.Threads), p.Notes)
	}
	if counts.Folded != 1 || counts.Discarded[profile.Failed] != 1 {
		t.Errorf("%+v", counts)
	}
	if p := w.profileOf(good, &counts); len(p.Threads) != 1 || len(p.Notes) != 0 || counts.Folded != 1 {
		t.Errorf("%d threads, notes %q", len(p.Threads), p.Notes)
	}
}

// TestPlacingPanics: the agent's lock, which is given away meanwhile, is held as before.
func TestPlacingPanics(t *testing.T) {
	a, w, _ := faultyAgent(t, stageWindow, 1)
	sampled(a, 1)
	sampled(a, 2)
	a.place(w)
	if !a.mu.TryLock() {
		t.Fatal("the agent's lock is held")
	}
}

// TestDiscoveryPanics: a process over which the search for VMs panics is left alone for a while.
func TestDiscoveryPanics(t *testing.T) {
	a, p, _ := fakeGuest(t, nil)
	a.fault = func(s stage, pid int) {
		if s == stageDiscover && pid == p.pid {
			panic("hostile")
		}
	}
	a.withVM(t.Context())
	if n := a.panics.all()[string(stageDiscover)]; n != 1 {
		t.Fatalf("%d failures are counted", n)
	}
	if slices.Contains(a.candidates(), p.pid) {
		t.Error("the process is looked at again at once")
	}
	p.retry.Store(int64(proc.Monotonic()))
	if !slices.Contains(a.candidates(), p.pid) {
		t.Error("the process is not looked at again")
	}
}

func TestRecordOfNobody(t *testing.T) {
	for _, raw := range [][]byte{nil, make([]byte, 7)} {
		if pid, ok := bpf.PID(raw); ok {
			t.Errorf("record of %d bytes is of process %d", len(raw), pid)
		}
	}
	if pid, ok := bpf.PID(sampleRecord(identity{77, 1, 1})); pid != 77 || !ok {
		t.Errorf("got %d, %v", pid, ok)
	}
}

// TestObserverPanics: a panic over the profile of a window is counted and logged, and does not end the agent.
func TestObserverPanics(t *testing.T) {
	a, _, log := faultyAgent(t, stageObserve, 0)
	seen := 0
	for range 2 {
		a.hand(&profile.Profile{}, func(*profile.Profile) {
			seen++
			panic("hostile")
		})
	}
	if n := a.panics.all()[string(stageObserve)]; n != 2 || seen != 2 || strings.Count(log.String(), "stack=") != 2 {
		t.Errorf("%d failures are counted of %d:\n%s", n, seen, log)
	}
}
