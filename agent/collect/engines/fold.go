package engines

import (
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// counts accounts for received calls: received == folded + sum(discarded) + those that wait for the
// end of their burst, none after flush.
type counts struct {
	received, folded uint64
	taken            uint64 // received calls that did not come through the ring
	discarded        map[string]uint64
}

// Why user space discards a call that it received, apart from profile.Malformed, Failed and
// NoWindow.
const (
	discardUnnamed     = "unnamed"     // the engine has no name for the callee
	discardStale       = "stale"       // the call is from a VM that the process no longer runs
	discardFull        = "graph_full"  // an edge beyond fold.MaxEdges
	discardCalibration = "calibration" // the burst measures the cost of a hit; the engine counts it
	discardTime        = "time"        // the burst has an impossible time; the engine counts it
)

// noCallDiscards holds every reason, so that a series exists before its first failure.
func noCallDiscards() map[string]uint64 {
	return map[string]uint64{profile.Malformed: 0, profile.Failed: 0, profile.NoWindow: 0, discardUnnamed: 0,
		discardStale: 0, discardFull: 0,
		discardCalibration: 0, discardTime: 0}
}

// HandleCall folds a record of a sampled call, whose engine names it, or that has code versions.
func (e *Engines) HandleCall(s *fold.State, raw []byte) {
	e.counts.received++
	if c, err := bpf.DecodeCall(raw); err != nil {
		e.counts.discarded[profile.Malformed]++
	} else {
		e.onCall(s, c)
	}
}

func (e *Engines) onCall(s *fold.State, c *bpf.Call) {
	p := s.Process(&c.Header)
	own := e.recordedBy(c.Engine)
	if own == nil {
		e.counts.discarded[profile.Malformed]++
		return
	}
	folder, names := own.Engine.(calls.Folder)
	switch {
	case own.fold != nil:
		own.fold(own, s, p, c)
	case !names:
		e.counts.discarded[profile.Malformed]++
	case !folder.Fold(c, own.adder(s)):
		e.counts.discarded[discardUnnamed]++
	}
}

// HandleNamedCall folds a record of a sampled call that carries its names.
func (e *Engines) HandleNamedCall(s *fold.State, raw []byte) {
	e.counts.received++
	if c, err := bpf.DecodeNamedCall(raw); err != nil {
		e.counts.discarded[profile.Malformed]++
	} else {
		e.onNamedCall(s, c)
	}
}

func (e *Engines) onNamedCall(s *fold.State, c *bpf.NamedCall) {
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
	s.Process(&c.Header)
	if !folder.Fold(c, own.adder(s)) {
		e.counts.discarded[discardUnnamed]++
	}
}

// Fail accounts for a call over which the agent panicked, and for those lost with it.
func (e *Engines) Fail(*fold.State) {
	accounted := e.counts.folded + profile.Sum(e.counts.discarded)
	for _, own := range e.running {
		if holder, ok := own.Engine.(calls.SampleHolder); ok {
			accounted += uint64(holder.Held())
		}
		if unweigher, ok := own.Engine.(calls.Unweigher); ok {
			accounted += profile.Sum(unweigher.Unweighed())
		}
	}
	e.counts.discarded[profile.Failed] += e.counts.received - min(accounted, e.counts.received)
}

// recordedBy returns the engine for a kind of records; nil if it does not run.
func (e *Engines) recordedBy(kind uint8) *engine {
	for _, own := range e.running {
		if own.record == kind && kind != 0 {
			return own
		}
	}
	return nil
}

// foldListened folds a call that a breakpoint observed.
func (own *engine) foldListened(s *fold.State, p *fold.Process, c *bpf.Call) {
	e := own.engines
	caller, callee, ok := listened(c, p.Attachment.Load())
	if !ok {
		e.counts.discarded[discardStale]++
		return
	}
	s.Joiner().LearnCall(p, callee, caller, c.CalleeDepth, c.CallerDepth)
	e.addRaw(s, p, own.Name(), caller, callee, c.ClassEpoch)
}

// foldBranched folds a call that the CPU recorded.
func (own *engine) foldBranched(s *fold.State, p *fold.Process, c *bpf.Call) {
	own.engines.addRaw(s, p, own.Name(), branched(c.Caller), branched(c.Callee), c.ClassEpoch)
}

// addRaw folds a call between two code versions, and requests the names of both.
func (e *Engines) addRaw(s *fold.State, p *fold.Process, engine string, caller, callee guest.RawFrame, epoch uint32) {
	e.add(s, p, func(set *fold.CallSet) bool {
		s.Want(p, []guest.RawFrame{caller, callee}, epoch)
		return set.AddRaw(engine, caller, callee)
	})
}

// adder returns the function that receives weighed edges of an engine.
func (own *engine) adder(s *fold.State) calls.Add {
	e, name := own.engines, own.Name()
	return func(h *bpf.Header, edge profile.Edge, weight float64) {
		p := s.Known(h)
		if p == nil {
			e.counts.discarded[discardStale]++ // held for longer than its process lived: see Flush
			return
		}
		e.add(s, p, func(set *fold.CallSet) bool { return set.Add(name, edge, weight) })
	}
}

// Flush makes engines hand out samples that wait for the end of their burst, because a window ends.
func (e *Engines) Flush(s *fold.State) {
	for _, own := range e.running {
		if holder, ok := own.Engine.(calls.SampleHolder); ok {
			holder.Flush(own.adder(s))
		}
	}
}

// add adds a call to every window that wants its process.
func (e *Engines) add(s *fold.State, p *fold.Process, add func(*fold.CallSet) bool) {
	wanted, full := s.AddCall(p, add)
	switch {
	case !wanted:
		e.counts.discarded[profile.NoWindow]++
	case full:
		e.counts.discarded[discardFull]++
	default:
		e.counts.folded++
	}
}

// branched is one end of a call that the CPU recorded: an address; the record does not identify its
// code.
func branched(pc uint64) guest.RawFrame {
	return guest.RawFrame{Frame: bpf.Frame(uint64(bpf.FrameNative)<<60 | pc&(1<<60-1)), Kind: guest.RawAddress}
}

// listened converts a call that a listener observed to frames of trees and names. It returns false
// if the call is of a VM that the process no longer runs.
func listened(c *bpf.Call, attachment uint32) (caller, callee guest.RawFrame, ok bool) {
	ok = c.Attachment == attachment && attachment != 0
	callee = guest.RawFrame{Frame: bpf.Frame(c.Callee), Kind: guest.RawExact}
	return fold.CallSite(bpf.Frame(c.Caller), c.ClassEpoch), callee, ok
}
