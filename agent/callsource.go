package agent

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// start implements source.
func (e *callEngines) start(context.Context) error {
	e.endGovern = e.govern()
	return nil
}

func (e *callEngines) stop() error {
	if e.endGovern != nil {
		e.endGovern()
	}
	return nil
}

// endRequests ends the engines: they wait for what workers read.
func (e *callEngines) endRequests() error { return e.end() }

func (e *callEngines) addStats(c *bpf.Counts, s *profile.Stats) { s.Calls = e.stats(c) }

// fill estimates calls before the parts of processes are made, which takes the samples out of the window.
func (e *callEngines) fill(ctx context.Context, w *closedWindow, p *profile.Profile) (finish func()) {
	guests := e.estimate(ctx, w.Window, w.processes)
	return func() { e.addTo(p, w.Window, w.processes, guests) }
}

// handleCall folds a sampled call; mu is held.
func (a *Agent) handleCall(raw []byte) bool {
	if a.engines == nil {
		return false
	}
	a.engines.counts.received++
	c, err := bpf.DecodeCall(raw)
	if err != nil {
		a.engines.counts.discarded[profile.Malformed]++
		return true
	}
	a.onCall(c)
	return true
}

// handleNamedCall folds a sampled call that brought its names; mu is held.
func (a *Agent) handleNamedCall(raw []byte) bool {
	if a.engines == nil {
		return false
	}
	a.engines.counts.received++
	c, err := bpf.DecodeNamedCall(raw)
	if err != nil {
		a.engines.counts.discarded[profile.Malformed]++
		return true
	}
	a.onNamedCall(c)
	return true
}

// callFailed accounts for a call over which the agent panicked; mu is held.
func (a *Agent) callFailed() {
	if a.engines != nil {
		a.engines.counts.discarded[profile.Failed]++
	}
}
