package engines

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A showing is the state of offering a process to an engine.
type showing struct {
	done  bool
	again retry.Backoff
}

// showAgain is when a process that is still starting is offered to engines again: 25 s in all.
var showAgain = retry.Backoff{First: 100 * time.Millisecond, Limit: 8}

// Look offers a process to the engines that find their processes by themselves. A process that is
// not ready yet is offered again.
func (e *Engines) Look(p *guest.Process) {
	for _, own := range e.running {
		if finder, ok := own.Engine.(calls.GuestFinder); ok {
			own.look(finder, p)
		}
	}
}

func (own *engine) look(finder calls.GuestFinder, p *guest.Process) {
	e := own.engines
	if p.Exited.Load() || !e.Wanted(p.PID) {
		return
	}
	s := own.shown.Get(p)
	if s.done {
		return
	}
	s.done = true
	found, err := finder.Look(context.Background(), p.PID)
	switch {
	case found:
		e.Owner.Do(func(*fold.State) { own.found[p] = true })
	case errors.Is(err, vmruntime.ErrStarting):
		if s.again.First == 0 {
			s.again = showAgain
		}
		if pause, ok := s.again.Pause(); ok {
			s.done = false
			e.Resolver.SubmitLater(p, pause)
		}
	case err != nil:
		e.Log.Debug("calls of a process are not sampled", "pid", p.PID, "err", err)
	}
}

// Leave implements guest.Follower.
func (e *Engines) Leave(p *guest.Process) {
	for _, own := range e.running {
		own.shown.Forget(p)
	}
}

// recordConnected records which processes are connected to engines.
func (e *Engines) recordConnected() {
	connected := make([]map[int]string, len(e.running))
	for i, own := range e.running {
		if connector, ok := own.Engine.(calls.Connector); ok {
			connected[i] = connector.Connected()
		}
	}
	e.Owner.Do(func(s *fold.State) {
		for i, own := range e.running {
			own.connected = connected[i]
			for pid, runtime := range own.connected {
				if p := s.Table[pid]; p != nil {
					p.SetRuntime(runtime)
				}
			}
			maps.DeleteFunc(own.found, func(p *guest.Process, _ bool) bool { return p.Exited.Load() })
		}
	})
}

// Which processes belong to an engine.

// isConnected is for engines that implement calls.Connector.
func (own *engine) isConnected(_ *fold.State, p *fold.Process) bool {
	_, ok := own.connected[p.PID]
	return ok
}

// isFound is for engines that implement calls.GuestFinder.
func (own *engine) isFound(_ *fold.State, p *fold.Process) bool { return own.found[p.Process] }

// isAttached is for an engine of all VMs that the agent is attached to.
func (own *engine) isAttached(_ *fold.State, p *fold.Process) bool { return p.HasCalls() }

// isAny is for an engine of all processes.
func (own *engine) isAny(_ *fold.State, _ *fold.Process) bool { return true }

// isObserved is for an engine of compiled code that no other engine handles better.
func (own *engine) isObserved(s *fold.State, p *fold.Process) bool { return own.engines.observes(s, p) }

// observes reports whether the engine listener, if it runs, samples a process: one with mapped
// code, unless it cooperates, or an attached VM, unless its calls are estimated.
func (e *Engines) observes(s *fold.State, p *fold.Process) bool {
	if p.HasCalls() {
		return e.estimator == nil
	}
	if p.Code.Load() == nil {
		return false
	}
	for _, own := range e.running {
		if own.isConnected(s, p) {
			return false
		}
	}
	return true
}
