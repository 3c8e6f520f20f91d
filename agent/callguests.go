package agent

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
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
	again backoff
}

// showAgain is when a process that is still starting is shown to engines again: 25 s in all.
var showAgain = backoff{first: 100 * time.Millisecond, limit: 8}

// look shows a process to the engines that must find their guests by themselves. What is not ready yet is shown again.
func (e *callEngines) look(p *targetProcess) {
	for _, own := range e.running {
		if finder, ok := own.Engine.(calls.Finder); ok {
			own.look(finder, p)
		}
	}
}

func (own *callEngine) look(finder calls.Finder, p *targetProcess) {
	a := own.engines.agent
	if p.exited.Load() || !a.wanted(p.pid) {
		return
	}
	s := own.shown.of(p)
	if s.done {
		return
	}
	s.done = true
	found, err := finder.Look(context.Background(), p.pid)
	switch {
	case found:
		a.mu.Lock()
		defer a.mu.Unlock()
		own.found[p] = true
	case errors.Is(err, vmruntime.ErrStarting):
		if s.again.first == 0 {
			s.again = showAgain
		}
		if pause, ok := s.again.again(); ok {
			s.done = false
			a.names.submitLater(p, pause)
		}
	case err != nil:
		a.log.Debug("calls of a process are not sampled", "pid", p.pid, "err", err)
	}
}

// leave implements follower.
func (e *callEngines) leave(p *targetProcess) {
	for _, own := range e.running {
		own.shown.forget(p)
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
				p.callItself(runtime)
			}
		}
		maps.DeleteFunc(own.found, func(p *targetProcess, _ bool) bool { return p.exited.Load() })
	}
}

// callItself notes what a cooperating guest calls itself.
func (p *process) callItself(runtime string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runtime == "" {
		p.runtime = runtime
	}
}

// Which processes are guests of an engine; agent.mu is held for all of these.

// isConnected is for engines that implement calls.Connector.
func (own *callEngine) isConnected(p *process) bool {
	_, ok := own.connected[p.pid]
	return ok
}

// isFound is for engines that implement calls.Finder.
func (own *callEngine) isFound(p *process) bool { return own.found[p.targetProcess] }

// isAttached is for an engine of all VMs that the agent is attached to.
func (own *callEngine) isAttached(p *process) bool { return p.attachment.Load() != 0 }

// isAny is for an engine of all processes.
func (own *callEngine) isAny(*process) bool { return true }

// isObserved is for an engine of compiled code that no other engine knows better.
func (own *callEngine) isObserved(p *process) bool { return own.engines.observes(p) }

// observes reports whether a process is a guest of the engine listener, if that runs: one whose code a map names, unless it
// cooperates, or an attached VM, unless its calls are estimated.
func (e *callEngines) observes(p *process) bool {
	if p.attachment.Load() != 0 {
		return e.estimator == nil
	}
	if p.code.Load() == nil {
		return false
	}
	for _, own := range e.running {
		if own.isConnected(p) {
			return false
		}
	}
	return true
}
