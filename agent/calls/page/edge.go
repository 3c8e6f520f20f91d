package page

import (
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// native stands for callers outside of registered code: a VM that calls into its compiled methods.
var native = symbolize.Intern(symbolize.Frame{
	Function: "[native]", SystemName: "[native]", Kind: symbolize.KindMarker, Mapping: unique.Make(symbolize.Mapping{}),
})

// Edge names a call of the event stream: by what its guest has registered by now, as it held when the call was made.
// It is false if the call cannot be named; Stats says why. Every call must come here once, in the order of the
// stream, as the cost of a hit is measured on them.
func (e *Engine) Edge(c *bpf.Call) (profile.Edge, bool) {
	e.hit.observe(c)
	g := e.table.find(c.Attachment)
	if g == nil || g.peer.id.PID != int(c.Header.Pid) {
		e.tally.unresolved(causeGuest)
		return profile.Edge{}, false
	}
	callee, ok := g.code.callee(c.Callee)
	if !ok {
		e.tally.unresolved(causeCallee)
		return profile.Edge{}, false
	}
	e.tally.resolved()
	caller, offset, line, ok := g.code.caller(c.Caller, c.Header.Time)
	if !ok {
		e.tally.unresolved(causeCaller)
		return profile.Edge{Caller: native, Site: profile.Site{Offset: -1}, Callee: callee}, true
	}
	return profile.Edge{Caller: caller, Site: profile.Site{Line: clip(line), Offset: clip(offset)}, Callee: callee}, true
}

// Fold names and weighs a call of the event stream. Once its burst is over, add gets its edge and how many calls of the
// guest it stands for: what add gets is of calls before c, or of c, and all of the same process. The weights are right
// in proportion to each other; as numbers they may be off by a factor of two for calls of a few nanoseconds. Fold is
// false if the call cannot be named; Stats says why. Every call must come here or to Edge once, in the order of the
// stream.
func (e *Engine) Fold(c *bpf.Call, add calls.Add) bool {
	edge, ok := e.Edge(c)
	e.weigher.take(c, edge, ok, e.costs(), add)
	return ok
}

// Flush hands out the samples of bursts that are not over, of all processes: at the end of a window.
func (e *Engine) Flush(add calls.Add) {
	e.weigher.mu.Lock()
	defer e.weigher.mu.Unlock()
	e.weigher.flush(e.costs(), add)
	for key := range e.weigher.threads {
		if !e.table.connected(key.guest) {
			delete(e.weigher.threads, key)
		}
	}
}

// costs are what bursts are corrected by. Until a hit was measured, a usual one is assumed.
func (e *Engine) costs() costs {
	const usual = 700 * time.Nanosecond
	hit := e.hit.time()
	if hit == 0 {
		hit = usual
	}
	return costs{hit: hit, skip: skipLeast, tick: e.tick / 2} // the way into the kernel was before
}

// clip fits a number of a guest's making into what profiles have.
func clip(n uint32) int32 { return int32(min(n, 1<<31-1)) }

// A Guest is a cooperating VM, for people and for labels.
type Guest struct {
	PID     int
	Runtime string // as it calls itself, cleaned
	Methods int    // that it registered
}

// Guests are the VMs that are connected now.
func (e *Engine) Guests() (all []Guest) {
	e.table.each(func(g *guest) {
		all = append(all, Guest{PID: g.peer.id.PID, Runtime: symbolize.CleanName(g.name), Methods: g.code.len()})
	})
	return all
}

// Connected implements calls.Connector.
func (e *Engine) Connected() map[int]string {
	runtimes := map[int]string{}
	for _, g := range e.Guests() {
		runtimes[g.PID] = g.Runtime
	}
	return runtimes
}

// Stats says what was done with guests so far.
func (e *Engine) Stats() Stats {
	s := e.tally.stats()
	s.Guests, s.Unweighed = e.table.len(), e.Unweighed()
	return s
}

// Unweighed implements calls.Unweigher.
func (e *Engine) Unweighed() map[string]uint64 {
	e.weigher.mu.Lock()
	defer e.weigher.mu.Unlock()
	return map[string]uint64{"calibration": e.weigher.calibrations, "time": e.weigher.unmeasured}
}
