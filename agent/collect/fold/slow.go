package fold

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Bounds of what is kept of threads until their invocations end.
const (
	maxSlowParts    = 256     // waits and samples of a thread, each 56 bytes: the last ones
	maxSlowThreads  = 1 << 12 // threads of all processes
	maxSlowContexts = 1 << 16 // contexts of a process
)

// SlowCalls keeps what threads did until their invocations of a method end, and gives the slowest
// of these to the windows in which they end. They belong to a State. Methods of a nil one do
// nothing.
type SlowCalls struct {
	// Full is called when windows open and close, and when one of them gets an invocation: shorter
	// ones than that need not be added, as all open windows have as many as they keep. It may be
	// nil.
	Full func(least time.Duration)

	// Code is the code of the method in a process, whose frames show that a thread is in an
	// invocation; nil is none.
	Code func(p *Process) *SlowCode

	// Since is when recording began, CLOCK_MONOTONIC. Invocations that began before are left out:
	// what their threads did first is not known.
	Since time.Duration

	threads map[slowThreadKey]*slowThread
	trees   map[*Process]*Tree
}

type slowThreadKey struct {
	process *Process
	tid     uint32
}

// A slowThread is what a thread did lately.
type slowThread struct {
	name  string
	parts []slowPart // in their order
	// away is the wait that it was in when a window ended; it has no context if the thread has been
	// seen since, or was in none.
	away slowPart
	cut  time.Duration // CLOCK_MONOTONIC: what was before then is forgotten; 0: nothing
	over time.Duration // CLOCK_MONOTONIC: invocations that began then or before have ended, and were added
}

// A slowPart is a wait, or a sample on the CPU, which takes no time.
type slowPart struct {
	since, ready, until time.Duration // CLOCK_MONOTONIC; from ready on the thread could run
	context             cct.NodeID
	state               string
	weight              float64
	sp                  uint64
	outside             bool // the whole stack is known, and the method is not in it
	away                bool // a wait that goes on
}

// A SlowCode is how frames of a method are recognised.
type SlowCode struct {
	Versions map[uint32]bool // compilations, by the number that frames have
	Methods  []uint64        // addresses of the VM's structures
}

// outside reports whether a stack is whole, and the method is not in it.
func (c *SlowCode) outside(stack []guest.RawFrame) bool {
	if c == nil || len(stack) == 0 {
		return false
	}
	managed := false
	for _, f := range stack {
		switch {
		case f.End != 0:
			return false
		case f.Kind == guest.RawKernel:
			continue
		case f.Kind != guest.RawReturn && f.Kind != guest.RawExact:
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
		since: wait.Since, ready: ready, until: wait.Until, state: wait.State, sp: wait.SP, away: wait.Away,
		weight: cmp.Or(wait.DelayWeight, wait.Weight), // weight of the whole wait
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

func (c *SlowCalls) note(s *State, p *Process, epoch, tid uint32, name string, stack []guest.RawFrame, part slowPart) {
	key := slowThreadKey{p, tid}
	t := c.threads[key]
	if t == nil {
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
	if part.away { // it is noted again when it has ended
		t.away = part
		return
	}
	t.away = slowPart{}
	if len(t.parts) >= maxSlowParts {
		half := len(t.parts) / 2
		t.cut = t.parts[half-1].until
		t.parts = append(t.parts[:0], t.parts[half:]...)
	}
	t.parts = append(t.parts, part)
}

// Add adds an invocation that has ended to all open windows. Its thread's earlier waits are
// forgotten.
func (c *SlowCalls) Add(s *State, call *SlowCall) {
	if c == nil || call.To <= call.From {
		return
	}
	t := c.threads[slowThreadKey{call.Process, call.TID}]
	if t == nil || t.over < call.From {
		call.complete(t)
		for w := range s.windows {
			c.keep(w, call, t)
		}
		c.limit(s)
	}
	if t != nil {
		t.forget(call.To)
	}
}

// Unfinished adds an invocation that, as far as is known, had not ended when a window did: if its
// thread has left it all the same, to all open windows; otherwise to this one, unless another
// window follows.
func (c *SlowCalls) Unfinished(s *State, w *Window, call *SlowCall) {
	if c == nil || call.To <= call.From {
		return
	}
	call.End = profile.CallRunning
	t := c.threads[slowThreadKey{call.Process, call.TID}]
	if t != nil && t.over >= call.From {
		return
	}
	call.complete(t)
	switch {
	case call.End == profile.CallUnwound:
		t.over = call.From
		for w := range s.windows {
			c.keep(w, call, t)
		}
		c.limit(s)
	case !w.Continued:
		c.keep(w, call, t)
	}
}

// keep adds an invocation to a window if it is one of the slowest there.
func (c *SlowCalls) keep(w *Window, call *SlowCall, t *slowThread) {
	if call.From < c.Since || !w.Wants(call.Process.PID) || len(w.Slow) == profile.MaxSlowCalls &&
		call.length() <= w.Slow[len(w.Slow)-1].length() {
		return
	}
	if call.tree == nil {
		call.collect(t, c.trees[call.Process])
	}
	w.hold(call.Process)
	at, _ := slices.BinarySearchFunc(w.Slow, call, func(a, b *SlowCall) int {
		return cmp.Compare(b.length(),
			a.length())
	})
	w.Slow = slices.Insert(w.Slow, at, call)
	w.Slow = w.Slow[:min(len(w.Slow), profile.MaxSlowCalls)]
}

// limit says how long the invocations are that open windows still have room for.
func (c *SlowCalls) limit(s *State) {
	if c == nil || c.Full == nil {
		return
	}
	least := time.Duration(math.MaxInt64)
	for w := range s.windows {
		if len(w.Slow) < profile.MaxSlowCalls {
			least = 0
			break
		}
		least = min(least, w.Slow[len(w.Slow)-1].length())
	}
	if len(s.windows) == 0 {
		least = 0
	}
	c.Full(least)
}

// forget forgets what the thread did before then.
func (t *slowThread) forget(then time.Duration) {
	t.parts = slices.DeleteFunc(t.parts, func(p slowPart) bool { return p.until <= then })
}

// Forget forgets what no invocation can contain any more that is yet to be added: all that ended
// before a time have been added, and inside has when the others began that had begun by then, by
// thread.
func (c *SlowCalls) Forget(then time.Duration, inside map[uint32]time.Duration) {
	if c == nil {
		return
	}
	for key, t := range c.threads {
		from, in := inside[key.tid]
		if t.forget(min(then, cmp.Or(from, then))); len(t.parts) == 0 && !in {
			delete(c.threads, key)
		}
	}
	used := map[*Process][]float64{} // how many parts are of each context
	for key, t := range c.threads {
		parts := used[key.process]
		if parts == nil {
			parts = make([]float64, c.trees[key.process].Len()+1)
			used[key.process] = parts
		}
		for _, p := range t.parts {
			parts[p.context]++
		}
		if t.away.away {
			parts[t.away.context]++
		}
	}
	places := map[*Process][]cct.NodeID{}
	for p, tree := range c.trees {
		if used[p] == nil {
			delete(c.trees, p)
			continue
		}
		tree.AddUp(used[p])
		c.trees[p], places[p] = tree.Prune(nil, func(id cct.NodeID) bool { return used[p][id] > 0 })
	}
	for key, t := range c.threads {
		for i := range t.parts {
			t.parts[i].context = places[key.process][t.parts[i].context]
		}
		t.away.context = places[key.process][t.away.context]
	}
}

// ended forgets a process.
func (c *SlowCalls) ended(p *Process) {
	if c == nil {
		return
	}
	delete(c.trees, p)
	maps.DeleteFunc(c.threads, func(key slowThreadKey, _ *slowThread) bool { return key.process == p })
}

// Markers of time whose stack is not known.
var (
	shortWaits = guest.Marker("[short waits]") // waits that were not recorded
	notSampled = guest.Marker("[not sampled]") // on the CPU
)

// frames calls need for the frames of p that invocations which have not ended may have.
func (c *SlowCalls) frames(p *Process, need func(guest.RawFrame)) {
	if c == nil || c.trees[p] == nil {
		return
	}
	for id, n := range c.trees[p].Nodes() {
		if id != cct.Root {
			need(n.Key)
		}
	}
}
