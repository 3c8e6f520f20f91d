package fold

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Bounds of what is kept of threads until their invocations end.
const (
	maxSlowParts    = 256     // waits and samples of a thread, each 56 bytes: the last ones
	maxSlowThreads  = 1 << 12 // of all processes
	maxSlowContexts = 1 << 16 // of a process
)

// SlowCalls keeps the slowest invocations of a method, with what their threads did in them. They belong to a State. Methods of a nil one do
// nothing.
type SlowCalls struct {
	// Full is called when as many are kept as there may be: shorter ones than that need not be added; 0 when they were taken. It may be nil.
	Full func(least time.Duration)

	// Code is the code of the method in a process, whose frames show that a thread is in an invocation; nil is none.
	Code func(p *Process) *SlowCode

	threads map[slowThreadKey]*slowThread
	trees   map[*Process]*Tree
	calls   []*SlowCall // the longest first
}

type slowThreadKey struct {
	process *Process
	tid     uint32
}

// A slowThread is what a thread did lately.
type slowThread struct {
	name  string
	parts []slowPart    // in their order
	cut   time.Duration // CLOCK_MONOTONIC: what was before then is forgotten; 0: nothing
}

// A slowPart is a wait, or a sample on the CPU, which takes no time.
type slowPart struct {
	since, ready, until time.Duration // CLOCK_MONOTONIC; from ready on the thread could run
	context             cct.NodeID
	state               string
	weight              float64
	sp                  uint64
	outside             bool // the whole stack is known, and the method is not in it
}

// A SlowCode is how frames of a method are recognised.
type SlowCode struct {
	Versions map[uint32]bool // compilations, by the number that frames have
	Methods  []uint64        // addresses of the VM's structures
}

// outside reports whether a stack is whole, and the method is not in it.
func (c *SlowCode) outside(stack []target.RawFrame) bool {
	if c == nil || len(stack) == 0 {
		return false
	}
	managed := false
	for _, f := range stack {
		switch {
		case f.End != 0:
			return false
		case f.Kind == target.RawKernel:
			continue
		case f.Kind != target.RawReturn && f.Kind != target.RawExact:
			return false
		}
		switch f.Frame.Kind() {
		case bpf.FrameJIT:
			managed = true
			if c.Versions[f.Frame.CompileID()] {
				return false
			}
		case bpf.FrameInterpreted:
			managed = true
			if slices.Contains(c.Methods, f.Frame.Method()) {
				return false
			}
		}
	}
	return managed
}

// A SlowCall is an invocation, with frames that are not named yet.
type SlowCall struct {
	Process  *Process
	TID      uint32
	From, To time.Duration // CLOCK_MONOTONIC
	SP       uint64        // the thread's stack pointer at the entry
	Ran      time.Duration // on a CPU
	RanKnown bool
	Waited   time.Duration // for a CPU
	End      profile.CallEnd
	Cut      bool // what its thread did first is forgotten

	thread string
	tree   *Tree
	parts  []slowPart
}

func (c *SlowCall) length() time.Duration { return c.To - c.From }

// NewSlowCalls keeps none yet.
func NewSlowCalls() *SlowCalls {
	return &SlowCalls{threads: map[slowThreadKey]*slowThread{}, trees: map[*Process]*Tree{}}
}

// Wait notes a wait of a thread.
func (c *SlowCalls) Wait(s *State, p *Process, epoch uint32, e *Event, wait *Wait) {
	if c == nil {
		return
	}
	ready := max(wait.Until-wait.Delay, wait.Since)
	if wait.State == cause.Runnable || wait.State == cause.Throttled {
		ready = wait.Until
	}
	c.note(s, p, epoch, e.TID, e.Thread, e.Stack, slowPart{
		since: wait.Since, ready: ready, until: wait.Until, state: wait.State, sp: wait.SP,
		weight: cmp.Or(wait.DelayWeight, wait.Weight), // of the whole wait
	})
}

// sample notes that a thread was on a CPU.
func (c *SlowCalls) sample(s *State, p *Process, t *Sample) {
	if c == nil {
		return
	}
	t.complete()
	at := time.Duration(t.Time)
	c.note(s, p, t.ClassEpoch, t.Tid, "", t.Stack, slowPart{since: at, ready: at, until: at, state: cause.Running})
}

func (c *SlowCalls) note(s *State, p *Process, epoch, tid uint32, name string, stack []target.RawFrame, part slowPart) {
	key := slowThreadKey{p, tid}
	t := c.threads[key]
	if t == nil {
		if len(c.threads) >= maxSlowThreads {
			maps.DeleteFunc(c.threads, func(key slowThreadKey, _ *slowThread) bool { return key.process.Exited.Load() })
		}
		if len(c.threads) >= maxSlowThreads {
			return // what it did is not sampled
		}
		t = &slowThread{}
		c.threads[key] = t
	}
	if name != "" {
		t.name = name
	}
	tree := c.trees[p]
	if tree == nil {
		tree = &Tree{Limit: maxSlowContexts}
		c.trees[p] = tree
	}
	n := tree.Len()
	part.context = tree.Add(stack, 1)
	if c.Code != nil {
		part.outside = c.Code(p).outside(stack)
	}
	if tree.Len() != n {
		s.Want(p, stack, epoch)
	}
	if len(t.parts) >= maxSlowParts {
		half := len(t.parts) / 2
		t.cut = t.parts[half-1].until
		t.parts = append(t.parts[:0], t.parts[half:]...)
	}
	t.parts = append(t.parts, part)
}

// Add adds an invocation that has ended, or had not when the recording did. Its thread's earlier waits are forgotten. It counts if it began
// in an open window.
func (c *SlowCalls) Add(s *State, call *SlowCall) {
	if c == nil || call.To <= call.From {
		return
	}
	wanted := false
	for w := range s.windows {
		wanted = wanted || w.Wants(call.Process.PID) && w.Began <= call.From
	}
	call.tree = c.trees[call.Process]
	t := c.threads[slowThreadKey{call.Process, call.TID}]
	if t != nil {
		call.thread, call.Cut = t.name, t.cut > call.From
		call.leave(t.parts)
		defer func() {
			t.parts = slices.DeleteFunc(t.parts, func(p slowPart) bool { return p.until <= call.To })
		}()
	}
	if !wanted || len(c.calls) == profile.MaxSlowCalls && call.length() <= c.calls[len(c.calls)-1].length() {
		return
	}
	if t != nil {
		for _, p := range t.parts {
			if p.until > call.From && p.since < call.To || p.state == cause.Running && p.since >= call.From && p.since <= call.To {
				call.parts = append(call.parts, p)
			}
		}
	}
	at, _ := slices.BinarySearchFunc(c.calls, call, func(a, b *SlowCall) int { return cmp.Compare(b.length(), a.length()) })
	c.calls = slices.Insert(c.calls, at, call)
	if c.calls = c.calls[:min(len(c.calls), profile.MaxSlowCalls)]; len(c.calls) == profile.MaxSlowCalls && c.Full != nil {
		c.Full(c.calls[len(c.calls)-1].length())
	}
}

// leave ends an invocation whose return was not seen where its thread was seen outside: with less on its stack, or with a stack without the
// method.
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

// Take returns the slowest invocations, the slowest first, and forgets them.
func (c *SlowCalls) Take() []*SlowCall {
	calls := c.calls
	c.calls = nil
	if c.Full != nil {
		c.Full(0)
	}
	return calls
}

// frames calls need for the frames of p that may be shown.
func (c *SlowCalls) frames(p *Process, need func(target.RawFrame)) {
	if c == nil || c.trees[p] == nil {
		return
	}
	for id, n := range c.trees[p].Nodes() {
		if id != cct.Root {
			need(n.Key)
		}
	}
}

// Markers of time whose stack is not known.
var (
	shortWaits = target.Marker("[short waits]") // that were not recorded
	notSampled = target.Marker("[not sampled]") // on the CPU
)

// Profile names the frames, given when CLOCK_MONOTONIC was 0.
func (c *SlowCall) Profile(names target.Names, zero time.Time) profile.SlowCall {
	out := profile.SlowCall{TID: int(c.TID), Thread: c.thread, Start: zero.Add(c.From), Length: c.length(), End: c.End}
	d := c.divide()
	for _, p := range merged(d.exact, d.drawn, d.ran) {
		out.Parts = append(out.Parts, c.name(names, p))
	}
	if d.runnable > 0 {
		out.Parts = append(out.Parts, profile.SlowPart{Stack: []symbolize.Symbol{shortWaits}, State: cause.Runnable, Cause: cause.Runnable, Time: d.runnable})
	}
	if d.waited > 0 {
		out.Parts = append(out.Parts, profile.SlowPart{Stack: []symbolize.Symbol{shortWaits}, State: cause.Blocked, Cause: cause.Unknown, Time: d.waited})
	}
	if d.unsampled > 0 {
		out.Parts = append(out.Parts, profile.SlowPart{Stack: []symbolize.Symbol{notSampled}, State: cause.Running, Cause: cause.Running, Time: d.unsampled})
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
	runnable, waited, unsampled float64 // without a stack
}

// divide divides the time of an invocation. What it ran is known exactly, and so are waits that were recorded each. What is left of the time
// is that of short waits: of the drawn ones, in proportion to what they stand for, or of none. Without the former, what is left of the waits
// is what it ran.
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
func (c *SlowCall) name(names target.Names, of slowTime) profile.SlowPart {
	var stack namedStack
	stack.name(names, c.tree, of.context)
	part := profile.SlowPart{State: of.state, Cause: of.state, Time: of.time, Stack: stack.symbols}
	if of.state == cause.Running {
		return part
	}
	if len(part.Stack) == 0 {
		part.Stack, part.Cause = []symbolize.Symbol{stillWaiting}, cause.OfThread(of.state, c.thread)
		return part
	}
	what, inner := cause.Of(of.state, c.thread, part.Stack, stack.enters)
	part.Cause, part.Stack = what, part.Stack[inner:]
	return part
}
