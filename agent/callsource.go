package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

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
