package agent

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// faultyAgent is an agent without a kernel side that panics at one stage of one process, and what
// it logs.
func faultyAgent(t *testing.T, at guest.Stage, pid int) (*Agent, *fold.Window, *bytes.Buffer) {
	t.Helper()
	a, w := testAgent()
	var log bytes.Buffer
	a.services.Log = slog.New(slog.NewTextHandler(&log, nil))
	a.services.Root, a.services.Pool = proc.Root(t.TempDir()), proc.NewPool(proc.PoolOptions{})
	startResolver(t, a, func(s guest.Stage, of int) {
		if s == at && of == pid {
			panic("hostile")
		}
	})
	return a, w, &log
}

// startResolver gives an agent a resolver with two workers.
func startResolver(t *testing.T, a *Agent, fault func(s guest.Stage, pid int)) {
	t.Helper()
	a.services.Resolver = guest.NewResolver(guest.Config{Runtimes: runtimes.Table(), Root: a.services.Root,
		Log: a.services.Log, Pool: a.services.Pool, Attaching: a.services.Pool, Fault: fault})
	a.services.Resolver.Start(2)
	t.Cleanup(func() {
		a.services.Resolver.Stop()
		a.services.Resolver.Close()
	})
}

// sampled is a process with a frame to be named.
func sampled(a *Agent, pid uint32) *fold.Process {
	a.fold(sampleRecord(identity{PID: pid, Start: 5_000_000_123, Exec: 1}, 0x1000))
	return a.state().Table[int(pid)]
}

// TestRecordPanics: a record over which the drainer panics is discarded, with an account that
// holds. Others are folded.
func TestRecordPanics(t *testing.T) {
	a, w, log := faultyAgent(t, guest.StageRecord, 1)
	for range 5 {
		a.receive(sampleRecord(identity{PID: 1, Start: 5_000_000_123, Exec: 1}, 0x1000))
		a.receive(sampleRecord(identity{PID: 2, Start: 5_000_000_123, Exec: 1}, 0x1000))
	}
	if r := a.state().Counts; r.Samples != 10 || r.Folded != 5 || a.state().Discarded[profile.Failed] != 5 {
		t.Errorf("received %+v, discarded %v", r, a.state().Discarded)
	}
	if w.Received != w.Folded+profile.Sum(w.Discarded) || w.Folded != 5 {
		t.Errorf("window: received %d, folded %d, discarded %v", w.Received, w.Folded, w.Discarded)
	}
	if n := a.services.Resolver.Stats().Failures[string(guest.StageRecord)]; n != 5 ||
		strings.Count(log.String(), "stack=") != 1 {
		t.Errorf("%d failures are counted:\n%s", n, log)
	}
	// A record that is of no process.
	startResolver(t, a, func(guest.Stage, int) { panic("hostile") })
	a.receive(sampleRecord(identity{PID: 3, Start: 5_000_000_123, Exec: 1}, 0x1000)[:8])
}

// TestWindowPanics: a process whose part of the profile cannot be made has none, and its samples
// count as discarded.
func TestWindowPanics(t *testing.T) {
	a, w, _ := faultyAgent(t, guest.StageWindow, 1)
	bad, good := sampled(a, 1), sampled(a, 2)
	counts := profile.Counts{Folded: 2, Discarded: fold.NoDiscards(), Truncated: map[string]uint64{}}
	if p := a.processProfile(w, bad, nil, &counts); len(p.Threads) != 0 || len(p.Notes) != 1 {
		t.Errorf("%d threads, notes %q", len(p.Threads), p.Notes)
	}
	if counts.Folded != 1 || counts.Discarded[profile.Failed] != 1 {
		t.Errorf("%+v", counts)
	}
	if p := a.processProfile(w, good, nil, &counts); len(p.Threads) != 1 || len(p.Notes) != 0 || counts.Folded != 1 {
		t.Errorf("%d threads, notes %q", len(p.Threads), p.Notes)
	}
}

// TestPlacingPanics: the state is free after a panic over the samples of a process.
func TestPlacingPanics(t *testing.T) {
	a, w, _ := faultyAgent(t, guest.StageWindow, 1)
	sampled(a, 1)
	sampled(a, 2)
	a.place(w)
	if a.state().Folded != 2 {
		t.Error("the state is not what it was")
	}
}

// TestDiscoveryPanics: a process over which the search for VMs panics is left alone for a while.
func TestDiscoveryPanics(t *testing.T) {
	a, _ := testAgent()
	a.services.Root, a.services.Pool = proc.DefaultRoot, proc.NewPool(proc.PoolOptions{})
	id, err := a.services.Root.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := fold.NewProcess(id, false)
	a.state().Table[p.PID] = p
	startResolver(t, a, func(s guest.Stage, pid int) {
		if s == guest.StageDiscover && pid == p.PID {
			panic("hostile")
		}
	})
	a.withVM(t.Context())
	if n := a.services.Resolver.Stats().Failures[string(guest.StageDiscover)]; n != 1 {
		t.Fatalf("%d failures are counted", n)
	}
	if slices.Contains(a.candidates(), p.PID) {
		t.Error("the process is looked at again at once")
	}
	p.SetRetry(monotonic())
	if !slices.Contains(a.candidates(), p.PID) {
		t.Error("the process is not looked at again")
	}
}

func TestRecordOfNobody(t *testing.T) {
	for _, raw := range [][]byte{nil, make([]byte, 7)} {
		if pid, ok := bpf.PID(raw); ok {
			t.Errorf("record of %d bytes is of process %d", len(raw), pid)
		}
	}
	if pid, ok := bpf.PID(sampleRecord(identity{PID: 77, Start: 1, Exec: 1})); pid != 77 || !ok {
		t.Errorf("got %d, %v", pid, ok)
	}
}

// TestObserverPanics: panics over the profiles of windows are counted, the first one is logged, and
// they do not end the agent.
func TestObserverPanics(t *testing.T) {
	a, _, log := faultyAgent(t, guest.StageObserve, 0)
	seen := 0
	for range 2 {
		a.services.Resolver.Keep(guest.StageObserve, func() {
			seen++
			panic("hostile")
		})
	}
	if n := a.services.Resolver.Stats().Failures[string(guest.StageObserve)]; n != 2 || seen != 2 ||
		strings.Count(log.String(), "stack=") != 1 {
		t.Errorf("%d failures are counted of %d:\n%s", n, seen, log)
	}
}
