package agent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// wanted reports whether the kernel side samples a process.
func (a *Agent) wanted(pid int) bool {
	if !a.opt.Filter && len(a.opt.PIDs) == 0 {
		return true
	}
	var one uint8
	return a.objects.Pids.Lookup(uint32(pid), &one) == nil
}

// A showing is how far a process was shown to an engine.
type showing struct {
	done  bool
	again retry.Backoff
}

// showAgain is when a process that is still starting is shown to engines again: 25 s in all.
var showAgain = retry.Backoff{First: 100 * time.Millisecond, Limit: 8}

// Look shows a process to the engines that must find their guests by themselves. What is not ready yet is shown again.
func (e *callEngines) Look(p *target.Process) {
	for _, own := range e.running {
		if finder, ok := own.Engine.(calls.Finder); ok {
			own.look(finder, p)
		}
	}
}

func (own *callEngine) look(finder calls.Finder, p *target.Process) {
	a := own.engines.agent
	if p.Exited.Load() || !a.wanted(p.PID) {
		return
	}
	s := own.shown.Of(p)
	if s.done {
		return
	}
	s.done = true
	found, err := finder.Look(context.Background(), p.PID)
	switch {
	case found:
		a.mu.Lock()
		defer a.mu.Unlock()
		own.found[p] = true
	case errors.Is(err, vmruntime.ErrStarting):
		if s.again.First == 0 {
			s.again = showAgain
		}
		if pause, ok := s.again.Pause(); ok {
			s.done = false
			a.resolver.SubmitLater(p, pause)
		}
	case err != nil:
		a.log.Debug("calls of a process are not sampled", "pid", p.PID, "err", err)
	}
}

// Leave implements target.Follower.
func (e *callEngines) Leave(p *target.Process) {
	for _, own := range e.running {
		own.shown.Forget(p)
	}
}

// meet notes which guests are connected to engines; agent.mu is not held.
func (e *callEngines) meet() {
	connected := make([]map[int]string, len(e.running))
	for i, own := range e.running {
		if connector, ok := own.Engine.(calls.Connector); ok {
			connected[i] = connector.Connected()
		}
	}
	a := e.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, own := range e.running {
		own.connected = connected[i]
		for pid, runtime := range own.connected {
			if p := a.table[pid]; p != nil {
				p.SetRuntime(runtime)
			}
		}
		maps.DeleteFunc(own.found, func(p *target.Process, _ bool) bool { return p.Exited.Load() })
	}
}

// Which processes are guests of an engine; agent.mu is held for all of these.

// isConnected is for engines that implement calls.Connector.
func (own *callEngine) isConnected(p *fold.Process) bool {
	_, ok := own.connected[p.PID]
	return ok
}

// isFound is for engines that implement calls.Finder.
func (own *callEngine) isFound(p *fold.Process) bool { return own.found[p.Process] }

// isAttached is for an engine of all VMs that the agent is attached to.
func (own *callEngine) isAttached(p *fold.Process) bool { return p.Attachment.Load() != 0 }

// isAny is for an engine of all processes.
func (own *callEngine) isAny(*fold.Process) bool { return true }

// isObserved is for an engine of compiled code that no other engine knows better.
func (own *callEngine) isObserved(p *fold.Process) bool { return own.engines.observes(p) }

// observes reports whether a process is a guest of the engine listener, if that runs: one whose code a map names, unless it
// cooperates, or an attached VM, unless its calls are estimated.
func (e *callEngines) observes(p *fold.Process) bool {
	if p.Attachment.Load() != 0 {
		return e.estimator == nil
	}
	if p.Code.Load() == nil {
		return false
	}
	for _, own := range e.running {
		if own.isConnected(p) {
			return false
		}
	}
	return true
}
