package guest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// faultyResolver is a resolver without a kernel side that panics at one stage of one process, and
// what it logs.
func faultyResolver(t *testing.T, at Stage, pid int) (*Resolver, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	rs := startedResolver(t, Config{Root: proc.Root(t.TempDir()), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Fault: func(s Stage, of int) {
			if s == at && of == pid {
				panic("hostile")
			}
		}})
	return rs, &log
}

// startedResolver is a resolver without a kernel side that has two workers.
func startedResolver(t *testing.T, c Config) *Resolver {
	t.Helper()
	c.Pool = proc.NewPool(proc.PoolOptions{})
	c.Attaching = c.Pool
	rs := NewResolver(c)
	rs.Start(2)
	t.Cleanup(func() {
		rs.Stop()
		rs.Close()
	})
	return rs
}

// asked is a process with a frame to be named.
func asked(pid int) *Process {
	p := NewProcess(proc.Identity{PID: pid, Start: 5_000_000_123, Exec: 1})
	p.Ask([]Wanted{{RawFrame: RawFrame{Frame: 0x1000, Kind: RawExact}}})
	return p
}

const waitLong = time.Minute

// TestWorkerPanics: a panic of a naming worker costs the process its names for a while. The worker
// goes on, others get their names, and nobody waits for an answer that does not come.
func TestWorkerPanics(t *testing.T) {
	for _, at := range []Stage{StageAttach, StageNames, StageJobs} {
		t.Run(string(at), func(t *testing.T) {
			rs, log := faultyResolver(t, at, 1)
			bad, good := asked(1), asked(2)
			for range 10 { // more often than there are workers
				rs.queue.submit(bad)
				rs.queue.submit(good)
				rs.queue.wait(t.Context(), []*Process{bad, good}, waitLong)
			}
			if n := rs.panics.all()[string(at)]; n != 1 {
				t.Errorf("%d failures are counted, want one: %v", n, rs.panics.all())
			}
			if n := strings.Count(log.String(), "stack="); n != 1 ||
				!strings.Contains(log.String(), "failure_test.go") {
				t.Errorf("logged %d times:\n%s", n, log)
			}
			if len(bad.notes) != 1 || !strings.Contains(bad.notes[0], string(at)) || len(good.notes) != 0 {
				t.Errorf("notes %q and %q", bad.notes, good.notes)
			}
			for _, p := range []*Process{bad, good} {
				if len(p.wanted) != 0 || len(p.names) != 1 {
					t.Errorf("process %d: %d frames wait, %d have names", p.PID, len(p.wanted), len(p.names))
				}
			}
			// Jobs are answered, those of a process that is left alone with an error.
			if err := rs.WithWorker(t.Context(), bad, func() error { return nil }); !errors.Is(err, errFailed) {
				t.Errorf("job of the process that is left alone: %v", err)
			}
			if err := rs.WithWorker(t.Context(), good, func() error { return nil }); err != nil {
				t.Errorf("job of another one: %v", err)
			}
		})
	}
}

// TestFailureAgain: a process is tried again later, when it is sampled, and less often every time.
// Then its frames get their names.
func TestFailureAgain(t *testing.T) {
	rs, _ := faultyResolver(t, StageNames, 1)
	p := asked(1)
	pause := time.Duration(0)
	for range 3 {
		rs.queue.submit(p)
		rs.queue.wait(t.Context(), []*Process{p}, waitLong)
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
	named := rs.lookups.Load()
	rs.fault = nil
	rs.queue.submit(p)
	rs.queue.wait(t.Context(), []*Process{p}, waitLong)
	if n := rs.lookups.Load() - named; n != 1 || p.work.failure.until != 0 || len(p.work.failure.lost) != 0 {
		t.Errorf("%d frames were looked up, %d are left; left alone until %v", n, len(p.work.failure.lost),
			p.work.failure.until)
	}
}

// TestJobPanics: whoever wants something of a process hears of the panic, and so do those who wait
// behind.
func TestJobPanics(t *testing.T) {
	rs, _ := faultyResolver(t, "", 0)
	p := asked(1)
	var jobs []job
	for _, do := range []func() error{
		func() error { return nil }, func() error { panic("hostile") }, func() error { return nil },
	} {
		jobs = append(jobs, job{context.Background(), do, make(chan error, 1)})
	}
	p.jobs = slices.Clone(jobs)
	rs.queue.submit(p)
	rs.queue.wait(t.Context(), []*Process{p}, waitLong)
	if err := <-jobs[0].done; err != nil {
		t.Errorf("the job before: %v", err)
	}
	for _, j := range jobs[1:] {
		var panicked *proc.PanicError
		if err := <-j.done; !errors.As(err, &panicked) {
			t.Errorf("got %v", err)
		}
	}
	if n := rs.panics.all()[string(StageJobs)]; n != 1 {
		t.Errorf("%d failures are counted", n)
	}
}

// TestPoolPanics: what panics in the pool, for a worker, panics in the worker.
func TestPoolPanics(t *testing.T) {
	rs, _ := faultyResolver(t, "", 0)
	p := asked(1)
	err := rs.WithWorker(t.Context(), p, func() error {
		_, err := Call(rs, p, func() (int, error) { panic("hostile") })
		return err
	})
	var panicked *proc.PanicError
	if !errors.As(err, &panicked) || panicked.Value != "hostile" {
		t.Errorf("got %v", err)
	}
}

// TestAttachPanics: a library over which the agent panics is given up, and what was reserved for
// the VM is given back.
func TestAttachPanics(t *testing.T) {
	rs, p, lib := fakeVM(t, func(vmruntime.Target) (vmruntime.Process, error) { panic("hostile") })
	var panicked *proc.PanicError
	if err := proc.Catch(func() error { rs.attachVM(p, lib); return nil }); !errors.As(err, &panicked) {
		t.Fatalf("got %v", err)
	}
	if rs.attached != 0 || len(rs.slots) != 1 || p.Attachment.Load() != 0 {
		t.Errorf("%d attached, %d slots, attachment %d", rs.attached, len(rs.slots), p.Attachment.Load())
	}
}
