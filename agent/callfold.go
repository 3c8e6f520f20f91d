package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// callCounts accounts for received calls: received == folded + sum(discarded) + those that wait for the end of their
// burst, none after flush.
type callCounts struct {
	received, folded uint64
	taken            uint64 // of the received ones, those that did not come through the ring
	discarded        map[string]uint64
}

// Why user space discards a call that it received, apart from profile.Malformed, Failed and NoWindow.
const (
	discardUnnamed     = "unnamed"     // the engine knows no name of the callee
	discardStale       = "stale"       // of a VM that the process no longer runs
	discardFull        = "graph_full"  // an edge beyond fold.MaxEdges
	discardCalibration = "calibration" // of a burst that measures the cost of a hit; counted by the engine
	discardTime        = "time"        // of a burst whose time cannot be right; likewise
)

// noCallDiscards holds every reason, so that a series exists before its first failure.
func noCallDiscards() map[string]uint64 {
	return map[string]uint64{profile.Malformed: 0, profile.Failed: 0, profile.NoWindow: 0, discardUnnamed: 0, discardStale: 0, discardFull: 0,
		discardCalibration: 0, discardTime: 0}
}

// onCall folds a call whose names are known to its engine, or that names code versions; mu is held.
func (a *Agent) onCall(c *bpf.Call) {
	e := a.engines
	p := a.process(&c.Header)
	own := e.recordedBy(c.Engine)
	if own == nil {
		e.counts.discarded[profile.Malformed]++
		return
	}
	folder, names := own.Engine.(calls.Folder)
	switch {
	case own.fold != nil:
		own.fold(a, p, c)
	case !names:
		e.counts.discarded[profile.Malformed]++
	case !folder.Fold(c, own.add):
		e.counts.discarded[discardUnnamed]++
	}
}

// onNamedCall folds a call that brought its names; mu is held.
func (a *Agent) onNamedCall(c *bpf.NamedCall) {
	e := a.engines
	own := e.recordedBy(c.Engine)
	if own == nil {
		e.counts.discarded[profile.Malformed]++
		return
	}
	folder, names := own.Engine.(calls.NamedFolder)
	if !names {
		e.counts.discarded[profile.Malformed]++
		return
	}
	a.process(&c.Header)
	if !folder.Fold(c, own.add) {
		e.counts.discarded[discardUnnamed]++
	}
}

// recordedBy is the engine whose records are of a kind; nil if it does not run.
func (e *callEngines) recordedBy(kind uint8) *callEngine {
	for _, own := range e.running {
		if own.record == kind && kind != 0 {
			return own
		}
	}
	return nil
}

// foldListened folds a call that the engine listener observed; mu is held.
func (a *Agent) foldListened(p *fold.Process, c *bpf.Call) {
	caller, callee, ok := listened(c, p.Attachment.Load())
	if !ok {
		a.engines.counts.discarded[discardStale]++
		return
	}
	a.joiner.LearnCall(p, callee, caller, c.CalleeDepth, c.CallerDepth)
	a.foldRawCall(p, calls.Listener, caller, callee, c.ClassEpoch)
}

// foldBranched folds a call that the CPU recorded; mu is held.
func (a *Agent) foldBranched(p *fold.Process, c *bpf.Call) {
	a.foldRawCall(p, calls.Branch, branched(c.Caller), branched(c.Callee), c.ClassEpoch)
}

// foldRawCall folds a call between two code versions, and asks for the names of both; mu is held.
func (a *Agent) foldRawCall(p *fold.Process, engine string, caller, callee target.RawFrame, epoch uint32) {
	a.foldCall(p, func(s *windowCalls) bool {
		if p.Want([]target.RawFrame{caller, callee}, epoch, &a.nameCount) {
			a.dirty[p] = struct{}{}
		}
		return s.AddRaw(engine, caller, callee)
	})
}

// adder returns what takes weighed edges of an engine; agent.mu is held when that is called.
func (e *callEngines) adder(engine string) calls.Add {
	return func(h *bpf.Header, edge profile.Edge, weight float64) {
		p := e.agent.table[int(h.Pid)]
		if p == nil || !e.agent.sameProcess(p, h) {
			e.counts.discarded[discardStale]++ // held for longer than its process lived: see flush
			return
		}
		e.agent.foldCall(p, func(s *windowCalls) bool { return s.Add(engine, edge, weight) })
	}
}

// flush makes engines hand out what waits for the end of its burst, because a window ends; agent.mu is held.
func (e *callEngines) flush() {
	for _, own := range e.running {
		if holder, ok := own.Engine.(calls.Holder); ok {
			holder.Flush(own.add)
		}
	}
}

// foldCall adds a call to every window that wants its process; mu is held.
func (a *Agent) foldCall(p *fold.Process, add func(*windowCalls) bool) {
	counts := &a.engines.counts
	taken, full := false, false
	for w := range a.windows {
		if !w.wants(uint32(p.PID)) {
			continue
		}
		taken = true
		full = !add(w.callSet(p)) || full
	}
	switch {
	case !taken:
		counts.discarded[profile.NoWindow]++
	case full:
		counts.discarded[discardFull]++
	default:
		counts.folded++
	}
}
