package fold

import (
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Placing finds contexts for the samples of one process that a window has as links only, from the
// contexts known now.
type Placing struct {
	state    *State
	window   *Window
	process  *Process
	chaining *Chaining // nil if nothing was learned
	code     *guest.JITCode
	threads  map[ThreadKey]*Thread      // threads whose samples get their contexts
	gathered []ThreadKey                // threads whose samples are not yet sorted by link
	links    []*waitingLink             // links in the order in which they were found; the remaining ones
	byLink   map[chainLink]*waitingLink // all of them
}

// A waitingLink is the samples with one link.
type waitingLink struct {
	chainLink
	nodes []waitingNode
}

// A waitingNode is samples of one thread with the same place in the leaf and the same frames of the
// kernel.
type waitingNode struct {
	thread *Thread
	id     cct.NodeID // node in thread.Waiting
}

// A waitingStack is the known part of such samples: the kernel's frames, the leaf, its caller, and
// if contexts are checked all other callers.
type waitingStack struct {
	frames []guest.RawFrame
	user   int      // frames[user] is the leaf
	depths []uint32 // depths of the leaf and its caller
}

func (n waitingNode) stack() (s waitingStack) {
	s.frames = n.thread.Waiting.Stack(n.id)
	if len(s.frames) > 0 {
		s.frames, s.depths = s.frames[:len(s.frames)-1], depthsIn(s.frames[len(s.frames)-1])
	}
	for s.user < len(s.frames) && s.frames[s.user].Kind == guest.RawKernel {
		s.user++
	}
	return s
}

// linked returns the frames up to the caller.
func (s *waitingStack) linked() []guest.RawFrame {
	return slices.Clip(s.frames[:min(s.user+2, len(s.frames))])
}

// link returns false if there is no link: for frames of a VM that has ended, and for the rest of
// samples without room in the tree of waiting samples.
func (s *waitingStack) link() (chainLink, bool) {
	pair, ok := activations(nil, s.linked()[s.user:], s.depths)
	if !ok || s.frames[s.user].Kind != guest.RawExact {
		return chainLink{}, false
	}
	return linkOf(pair), true
}

// newPlacing returns a Placing of the samples of p in a window, by the contexts of p known now and
// later.
func (s *State) newPlacing(w *Window, p *Process) *Placing {
	threads := w.Processes[p]
	return &Placing{
		state: s, window: w, process: p, chaining: p.Chaining, code: p.Code.Load(), threads: threads,
		gathered: slices.Sorted(maps.Keys(threads)), byLink: map[chainLink]*waitingLink{},
	}
}

// placeWaiting gives all waiting samples of p their contexts: those of open windows, and of closing
// ones, whether their placing has begun or not. Unlike PlaceAll it takes all steps in one loan of
// the state, because the caller handles a record and forgets the known contexts before the loan
// ends. If it took them in pieces, that record and later ones would find contexts that are about to
// be forgotten, and no room for their own.
func (s *State) placeWaiting(p *Process) {
	for w := range s.windows {
		s.newPlacing(w, p).finish()
	}
	for w := range s.closing {
		switch pl := w.placing[p]; {
		case w.placed:
		case pl != nil:
			pl.finish()
		default:
			s.newPlacing(w, p).finish()
		}
	}
	for m := range p.measuring {
		m.finish()
	}
}

// finish takes all remaining steps.
func (pl *Placing) finish() {
	for pl.step() {
	}
}

// step sorts the samples of one thread or, once that is done, gives those of one link their
// contexts. It returns false once nothing is left.
func (pl *Placing) step() (more bool) {
	if len(pl.gathered) > 0 {
		t := pl.threads[pl.gathered[0]]
		pl.gathered = pl.gathered[1:]
		pl.gather(t)
		return true
	}
	if len(pl.links) > 0 {
		l := pl.links[0]
		pl.links = pl.links[1:]
		pl.placeLink(l)
		return true
	}
	for _, t := range pl.threads {
		pl.state.forgetWaiting(pl.window, t)
	}
	return false
}

// forgetWaiting drops the waiting samples of a thread.
func (s *State) forgetWaiting(w *Window, t *Thread) {
	s.grow(w, -t.Waiting.Len())
	t.Waiting = Tree{}
}

// failPlacing discards the samples of p in a window that have no context yet, because the agent
// panicked over them.
func (s *State) failPlacing(w *Window, p *Process) {
	for _, t := range w.Processes[p] {
		placed := uint64(0)
		for _, n := range t.Count.Placed {
			placed += n
		}
		failed := t.Count.Linked - min(placed, t.Count.Linked)
		t.Count.Linked -= failed
		w.Folded -= failed
		w.Discarded[profile.Failed] += failed
		s.forgetWaiting(w, t)
	}
}

// loanTime is how long placing and comparing hold the state at a time: placing one link takes up to
// some milliseconds, and the ring must not fill up meanwhile.
var loanTime = time.Millisecond

// PlaceAll gives the waiting samples of a closed window their contexts. It borrows the state for
// short periods. attempt calls its function, which does that for p, and returns its panic: then the
// samples of p without a context count as discarded.
func (o *Owner) PlaceAll(w *Window, attempt func(p *Process, do func()) error) {
	for p := range w.Processes {
		place := func(s *State) (more, failed bool) {
			failed = attempt(p, func() {
				pl := w.placing[p]
				if pl == nil {
					pl = s.newPlacing(w, p)
					if w.placing == nil {
						w.placing = map[*Process]*Placing{}
					}
					w.placing[p] = pl
				}
				for until := proc.Monotonic() + loanTime; pl.step(); {
					if proc.Monotonic() > until {
						more = true
						return
					}
				}
			}) != nil
			return more, failed
		}
		for more, failed := true, false; more; {
			if err := o.Do(func(s *State) { more, failed = place(s) }); err != nil || failed {
				more = false
				o.Do(func(s *State) { s.failPlacing(w, p) })
			}
		}
	}
	o.Do(func(*State) { w.placed, w.placing = true, nil })
}

// gather sorts the samples of a thread by their links. Samples without a link are not placed.
func (pl *Placing) gather(t *Thread) {
	for id, n := range t.Waiting.Nodes() {
		if n.Self == 0 {
			continue
		}
		node := waitingNode{t, id}
		s := node.stack()
		link, ok := s.link()
		if !ok || pl.chaining == nil {
			pl.give(t, profile.Unplaced, n.Self, unknownAbove(s.linked()))
			continue
		}
		l := pl.byLink[link]
		if l == nil {
			l = &waitingLink{chainLink: link}
			pl.byLink[link], pl.links = l, append(pl.links, l)
		}
		l.nodes = append(l.nodes, node)
	}
}

// A place is a context that some of a link's samples belong to.
type place struct {
	context   []activation
	certainty profile.Certainty
	share     float64
	owed      float64 // weight that it has not yet got; negative if it got too much
}

// places returns the contexts of samples with a link: at least one.
func (c *Chaining) places(l chainLink) []place {
	p := c.Chain.Place(l)
	if len(p.Candidates) == 0 {
		p.Candidates = []cct.Candidate[guest.RawFrame, uint32]{{Share: 1}}
	}
	places := make([]place, len(p.Candidates))
	for i, to := range p.Candidates {
		places[i] = place{context: c.context(nil, l, to), certainty: certaintyOf[p.Fit], share: to.Share}
		if to.Context == cct.Root {
			places[i].certainty = profile.Unplaced
		}
	}
	return places
}

var certaintyOf = [...]profile.Certainty{cct.Unique: profile.Certain, cct.Ambiguous: profile.Ambiguous,
	cct.Fitted: profile.Fitted, cct.Unplaced: profile.Unplaced}

// placeLink gives the samples of a link their contexts.
func (pl *Placing) placeLink(l *waitingLink) {
	places := pl.chaining.places(l.chainLink)
	for _, node := range l.nodes {
		weight, s := node.thread.Waiting.Node(node.id).Self, node.stack()
		if pl.state.opt.Join.Check { // the likeliest place, as samples with the same link are not distinguished
			truth, _ := activations(nil, s.frames[s.user:], s.depths)
			node.thread.Count.check(weight, rightCallers(places[0].context, truth, sameCall))
		}
		linked := s.linked()
		known := len(linked) - s.user // frames of the context that are the sample's own
		for i, part := range divide(weight, places) {
			if part == 0 {
				continue
			}
			to := &places[i]
			linked[len(linked)-1].End = 0 // the end is that of the walk, or of the last place
			stack := callers(linked, to.context[known:])
			pl.code.Mark(stack[len(linked):])
			pl.give(node.thread, to.certainty, part, stack)
		}
	}
}

// give adds weight to a context.
func (pl *Placing) give(t *Thread, certainty profile.Certainty, weight uint64, stack []guest.RawFrame) {
	tree := &t.Trees[certainty]
	limit(tree, pl.state.room())
	before := tree.Len()
	tree.Add(stack, weight)
	pl.state.grow(pl.window, tree.Len()-before)
	t.Count.Placed[certainty] += weight
	pl.state.opt.Join.Want(pl.process, stack)
}

// unknownAbove marks everything beyond the last frame of a stack as unknown.
func unknownAbove(stack []guest.RawFrame) []guest.RawFrame {
	if len(stack) > 0 {
		stack[len(stack)-1].End = bpf.EndKnown
	}
	return stack
}

// divide splits weight into whole parts in proportion to the shares of places, which sum to 1; the
// parts sum to weight. Later weights make up for rounding errors. This matters because leaves are
// at many places, so that most weights are 1: without it, the place with the largest share would
// get them all.
func divide(weight uint64, places []place) []uint64 {
	parts := make([]uint64, len(places))
	left := weight
	for i := range places {
		to := &places[i]
		to.owed += to.share * float64(weight)
		if to.owed >= 1 {
			parts[i] = min(uint64(to.owed), left)
			to.owed -= float64(parts[i])
			left -= parts[i]
		}
	}
	for ; left > 0; left-- {
		most := 0
		for i := range places {
			if places[i].owed > places[most].owed {
				most = i
			}
		}
		parts[most]++
		places[most].owed--
	}
	return parts
}
