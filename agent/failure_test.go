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

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// faultyResolver is a resolver without a kernel side that panics at one stage of one process, and what it logs.
func faultyResolver(t *testing.T, at stage, pid int) (*targets, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	ts := startedResolver(t, config{Root: proc.Root(t.TempDir()), Log: slog.New(slog.NewTextHandler(&log, nil)), Fault: func(s stage, of int) {
		if s == at && of == pid {
			panic("hostile")
		}
	}})
	return ts, &log
}

// startedResolver is a resolver without a kernel side that has two workers.
func startedResolver(t *testing.T, c config) *targets {
	t.Helper()
	c.Pool = proc.NewPool(proc.PoolOptions{})
	c.Attaching = c.Pool
	ts := newTargets(c)
	ts.start(2)
	t.Cleanup(func() {
		ts.stop()
		ts.close()
	})
	return ts
}

// asked is a process with a frame to be named.
func asked(pid int) *targetProcess {
	p := newTargetProcess(proc.Identity{PID: pid, Start: 5_000_000_123, Exec: 1})
	p.ask([]wanted{{rawFrame: rawFrame{frame: 0x1000, kind: rawExact}}})
	return p
}

const waitLong = time.Minute

// TestWorkerPanics: a panic of a naming worker costs the process its names for a while. The worker goes on, others get their
// names, and nobody waits for an answer that does not come.
func TestWorkerPanics(t *testing.T) {
	for _, at := range []stage{stageAttach, stageNames, stageJobs} {
		t.Run(string(at), func(t *testing.T) {
			ts, log := faultyResolver(t, at, 1)
			bad, good := asked(1), asked(2)
			for range 10 { // more often than there are workers
				ts.names.submit(bad)
				ts.names.submit(good)
				ts.names.wait(t.Context(), []*targetProcess{bad, good}, waitLong)
			}
			if n := ts.panics.all()[string(at)]; n != 1 {
				t.Errorf("%d failures are counted, want one: %v", n, ts.panics.all())
			}
			if n := strings.Count(log.String(), "stack="); n != 1 || !strings.Contains(log.String(), "failure_test.go") {
				t.Errorf("logged %d times:\n%s", n, log)
			}
			if len(bad.notes) != 1 || !strings.Contains(bad.notes[0], string(at)) || len(good.notes) != 0 {
				t.Errorf("notes %q and %q", bad.notes, good.notes)
			}
			for _, p := range []*targetProcess{bad, good} {
				if len(p.wanted) != 0 || len(p.names) != 1 {
					t.Errorf("process %d: %d frames wait, %d have names", p.pid, len(p.wanted), len(p.names))
				}
			}
			// Jobs are answered, those of a process that is left alone with an error.
			if err := ts.withWorker(t.Context(), bad, func() error { return nil }); !errors.Is(err, errFailed) {
				t.Errorf("job of the process that is left alone: %v", err)
			}
			if err := ts.withWorker(t.Context(), good, func() error { return nil }); err != nil {
				t.Errorf("job of another one: %v", err)
			}
		})
	}
}

// TestFailureAgain: a process is tried again later, when it is sampled, and less often every time. Then its frames get their
// names.
func TestFailureAgain(t *testing.T) {
	ts, _ := faultyResolver(t, stageNames, 1)
	p := asked(1)
	pause := time.Duration(0)
	for range 3 {
		ts.names.submit(p)
		ts.names.wait(t.Context(), []*targetProcess{p}, waitLong)
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
	named := ts.lookups.Load()
	ts.fault = nil
	ts.names.submit(p)
	ts.names.wait(t.Context(), []*targetProcess{p}, waitLong)
	if n := ts.lookups.Load() - named; n != 1 || p.work.failure.until != 0 || len(p.work.failure.lost) != 0 {
		t.Errorf("%d frames were looked up, %d are left; left alone until %v", n, len(p.work.failure.lost), p.work.failure.until)
	}
}

// TestJobPanics: whoever wants something of a process hears of the panic, and so do those who wait behind.
func TestJobPanics(t *testing.T) {
	ts, _ := faultyResolver(t, "", 0)
	p := asked(1)
	var jobs []job
	for _, do := range []func() error{
		func() error { return nil }, func() error { panic("hostile") }, func() error { return nil },
	} {
		jobs = append(jobs, job{context.Background(), do, make(chan error, 1)})
	}
	p.jobs = slices.Clone(jobs)
	ts.names.submit(p)
	ts.names.wait(t.Context(), []*targetProcess{p}, waitLong)
	if err := <-jobs[0].done; err != nil {
		t.Errorf("the job before: %v", err)
	}
	for _, j := range jobs[1:] {
		var panicked *proc.PanicError
		if err := <-j.done; !errors.As(err, &panicked) {
			t.Errorf("got %v", err)
		}
	}
	if n := ts.panics.all()[string(stageJobs)]; n != 1 {
		t.Errorf("%d failures are counted", n)
	}
}

// TestPoolPanics: what panics in the pool, for a worker, panics in the worker.
func TestPoolPanics(t *testing.T) {
	ts, _ := faultyResolver(t, "", 0)
	p := asked(1)
	err := ts.withWorker(t.Context(), p, func() error {
		_, err := callFor(ts, p, func() (int, error) { panic("hostile") })
		return err
	})
	var panicked *proc.PanicError
	if !errors.As(err, &panicked) || panicked.Value != "hostile" {
		t.Errorf("got %v", err)
	}
}

// TestAttachPanics: a library over which the agent panics is given up, and what was reserved for the VM is given back.
func TestAttachPanics(t *testing.T) {
	ts, p, lib := fakeVM(t, func(vmruntime.Target) (vmruntime.Process, error) { panic("hostile") })
	var panicked *proc.PanicError
	if err := proc.Catch(func() error { ts.attachGuest(p, lib); return nil }); !errors.As(err, &panicked) {
		t.Fatalf("got %v", err)
	}
	if ts.attached != 0 || len(ts.slots) != 1 || p.attachment.Load() != 0 {
		t.Errorf("%d attached, %d slots, attachment %d", ts.attached, len(ts.slots), p.attachment.Load())
	}
}
