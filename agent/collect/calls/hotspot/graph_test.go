package hotspot

import (
	"context"
	"log/slog"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// sampledWindow returns a closed window with processes that have these numbers of samples in
// compiled code.
func sampledWindow(samples ...uint64) *source.Closed {
	w := &source.Closed{Window: fold.NewWindow(nil)}
	for pid, n := range samples {
		p := fold.NewProcess(proc.Identity{PID: pid + 1}, true)
		t := &fold.Thread{}
		t.Trees[0].Add([]guest.RawFrame{{Frame: bpf.Frame(uint64(bpf.FrameJIT)<<60 | 7<<32 | 0x10),
			Kind: guest.RawExact}}, n)
		w.Window.Processes[p] = map[fold.ThreadKey]*fold.Thread{1: t}
		w.Processes = append(w.Processes, p)
	}
	return w
}

// Processes with too few samples are noted while the estimates of others are made. The race
// detector fails the test if both write the result at once.
func TestEstimateManyAtOnce(t *testing.T) {
	e, _ := idleEngine()
	e.Resolver = guest.NewResolver(guest.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no worker runs: every estimate fails at once
	var samples []uint64
	for i := range 200 {
		samples = append(samples, []uint64{1, leastSamples}[i%2])
	}
	w := sampledWindow(samples...)
	all := e.Estimate(ctx, w)
	for i, p := range w.Processes {
		if got, ok := all[p]; !ok || got.Note == "" || got.Failed != (samples[i] == leastSamples) {
			t.Errorf("process %d with %d samples: %+v", p.PID, samples[i], got)
		}
	}
}

// A panic over the estimate of one process is counted, and does not affect the estimates of others.
func TestEstimatePanics(t *testing.T) {
	e, _ := idleEngine()
	e.Resolver = guest.NewResolver(guest.Config{Log: slog.New(slog.DiscardHandler),
		Fault: func(s guest.Stage, pid int) {
			if s == guest.StageWindow && pid == 1 {
				panic("hostile")
			}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := sampledWindow(leastSamples, leastSamples, 1)
	all := e.Estimate(ctx, w)
	if len(all) != 3 || !all[w.Processes[0]].Failed || all[w.Processes[0]].Note == "" {
		t.Errorf("%+v", all)
	}
	if n := e.Resolver.Stats().Failures[string(guest.StageWindow)]; n != 1 {
		t.Errorf("%d failures are counted, want 1", n)
	}
}
