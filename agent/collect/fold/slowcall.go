package fold

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A SlowCall is an invocation, with frames that are not named yet.
type SlowCall struct {
	Process  *Process
	TID      uint32
	From, To time.Duration // CLOCK_MONOTONIC
	SP       uint64        // the thread's stack pointer at the entry
	Ran      time.Duration // time that it was on a CPU
	RanKnown bool
	Waited   time.Duration // time that it waited for a CPU
	End      profile.CallEnd
	Cut      bool // what its thread did first is forgotten

	thread string
	tree   *Tree // tree of the parts; nil until a window has it
	parts  []slowPart
}

func (c *SlowCall) length() time.Duration { return c.To - c.From }

// complete takes over what is known of the thread. An invocation whose return was not seen ends
// where its thread was seen outside.
func (call *SlowCall) complete(t *slowThread) {
	if t == nil {
		return
	}
	call.thread, call.Cut = t.name, t.cut > call.From
	call.leave(t.parts)
	if t.away.away {
		call.leave([]slowPart{t.away})
	}
}

// collect takes what the thread did in the invocation, with a copy of the stacks: those of the
// thread are forgotten when it has ended.
func (call *SlowCall) collect(t *slowThread, tree *Tree) {
	call.tree = &Tree{}
	if t == nil {
		return
	}
	parts := t.parts
	if t.away.away {
		parts = append(slices.Clone(parts), t.away)
	}
	for _, p := range parts {
		if p.until > call.From && p.since < call.To || p.state == cause.Running && p.since >= call.From &&
			p.since <= call.To {
			p.context = call.tree.Add(tree.Stack(p.context), 1)
			call.parts = append(call.parts, p)
		}
	}
}

// leave ends an invocation whose return was not seen where its thread was seen outside: with less
// on its stack, or with a stack without the method.
func (c *SlowCall) leave(parts []slowPart) {
	if c.End == profile.CallReturned {
		return
	}
	for _, p := range parts {
		if p.since > c.From && p.since < c.To && (p.outside || p.sp > c.SP) {
			c.To, c.End, c.RanKnown = p.since, profile.CallUnwound, false
			return
		}
	}
}

// frames calls need for its frames.
func (c *SlowCall) frames(need func(guest.RawFrame)) {
	for id, n := range c.tree.Nodes() {
		if id != cct.Root {
			need(n.Key)
		}
	}
}

// Profile names the frames, given when CLOCK_MONOTONIC was 0.
func (c *SlowCall) Profile(names guest.Names, zero time.Time) profile.SlowCall {
	out := profile.SlowCall{TID: int(c.TID), Thread: c.thread, Start: zero.Add(c.From), Length: c.length(), End: c.End}
	d := c.divide()
	for _, p := range merged(d.exact, d.drawn, d.ran) {
		out.Parts = append(out.Parts, c.name(names, p))
	}
	if d.runnable > 0 {
		out.Parts = append(out.Parts, profile.SlowPart{Stack: []symbol.Symbol{shortWaits}, State: cause.Runnable,
			Cause: cause.Runnable, Time: d.runnable})
	}
	if d.waited > 0 {
		out.Parts = append(out.Parts, profile.SlowPart{Stack: []symbol.Symbol{shortWaits}, State: cause.Blocked,
			Cause: cause.Unknown, Time: d.waited})
	}
	if d.unsampled > 0 {
		out.Parts = append(out.Parts, profile.SlowPart{Stack: []symbol.Symbol{notSampled}, State: cause.Running,
			Cause: cause.Running, Time: d.unsampled})
	}
	return out
}

// A slowTime is a part of an invocation with the time that it stands for, in ns.
type slowTime struct {
	context cct.NodeID
	state   string
	time    float64
}

// A slowDivision is what the time of an invocation is made of, in ns.
type slowDivision struct {
	exact, drawn, ran           []slowTime
	runnable, waited, unsampled float64 // times without a stack
}

// divide divides the time of an invocation. What it ran is known exactly, and so are waits that
// were recorded each. What is left of the time is that of short waits: of the drawn ones, in
// proportion to what they stand for, or of none. Without the former, what is left of the waits is
// what it ran.
func (c *SlowCall) divide() (d slowDivision) {
	length := float64(c.length())
	var exact, runnable, drawn float64
	samples := 0
	for _, p := range c.parts {
		if p.state == cause.Running {
			samples++
			continue
		}
		for _, of := range [...]struct {
			state    string
			from, to time.Duration
		}{{p.state, p.since, p.ready}, {cause.Runnable, p.ready, p.until}} {
			time := float64(min(of.to, c.To) - max(of.from, c.From))
			switch {
			case time <= 0:
			case p.weight > 1:
				d.drawn = append(d.drawn, slowTime{p.context, of.state, p.weight * time})
				drawn += p.weight * time
			default:
				d.exact = append(d.exact, slowTime{p.context, of.state, time})
				exact += time
				if of.state == cause.Runnable {
					runnable += time
				}
			}
		}
	}
	ran := float64(c.Ran)
	if !c.RanKnown {
		ran = length - exact - drawn
	}
	ran = min(max(ran, 0), length)
	off := length - ran
	if exact > off { // by the precision of the clocks
		scale(d.exact, off/exact)
		exact = off
	}
	rest := off - exact
	switch {
	case drawn > 0:
		scale(d.drawn, rest/drawn)
	default:
		d.runnable = min(max(float64(c.Waited)-runnable, 0), rest)
		d.waited = rest - d.runnable
	}
	if samples == 0 {
		d.unsampled = ran
		return d
	}
	for _, p := range c.parts {
		if p.state == cause.Running {
			d.ran = append(d.ran, slowTime{p.context, cause.Running, ran / float64(samples)})
		}
	}
	return d
}

// merged adds up the parts of lists that have a stack and a state in common, the longest first.
func merged(lists ...[]slowTime) (list []slowTime) {
	type key struct {
		context cct.NodeID
		state   string
	}
	sums := map[key]float64{}
	for _, p := range slices.Concat(lists...) {
		sums[key{p.context, p.state}] += p.time
	}
	for key, time := range sums {
		if time > 0 {
			list = append(list, slowTime{key.context, key.state, time})
		}
	}
	slices.SortFunc(list, func(a, b slowTime) int {
		return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.context, b.context), cmp.Compare(a.state, b.state))
	})
	return list
}

func scale(list []slowTime, factor float64) {
	for i := range list {
		list[i].time *= factor
	}
}

// name names a part, and its cause.
func (c *SlowCall) name(names guest.Names, of slowTime) profile.SlowPart {
	var stack namedStack
	stack.name(names, c.tree, of.context)
	part := profile.SlowPart{State: of.state, Cause: of.state, Time: of.time, Stack: stack.symbols}
	if of.state == cause.Running {
		return part
	}
	if len(part.Stack) == 0 {
		part.Stack, part.Cause = []symbol.Symbol{stillWaiting}, cause.OfThread(of.state, c.thread)
		return part
	}
	what, inner := cause.Classify(of.state, c.thread, part.Stack, stack.enters)
	part.Cause, part.Stack = what, part.Stack[inner:]
	return part
}
