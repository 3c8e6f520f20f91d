package cct

import "math"

// How much a Chain stores by default: some tens of megabytes of contexts, and as much of links, if
// methods and sites have one word each. Either takes up to twice that while it grows.
const (
	DefaultContexts = 1 << 18
	DefaultLinks    = 1 << 18
)

// A Chain finds the calling contexts of samples whose stacks were not walked. It is CallerChaining
// of Inoue and Nakatani ("How a Java VM Can Get More from a Hardware Performance Monitor", OOPSLA
// 2009, section 6): the depth of a frame is a hint that distinguishes contexts with the same
// method. Walk and Call teach it; Place maps a sample to a learned context.
//
//	var c cct.Chain[string, int]
//	c.Walk(stack, 1)   // one sample in many, with its whole stack
//	p := c.Place(link) // any other, with its caller only
//	for _, to := range p.Candidates {
//		fmt.Println(p.Fit, to.Share, c.Stack(nil, link, to))
//	}
//
// The paper chains only pairs of caller and callee. Pairs from samples only show who called a leaf,
// so the outer frames, which are never leaves, would have no callers. Hence walks are the main
// source here, and pairs fill in where there was no walk. Links also have the call site, and the
// first caller is known: the search is for the caller's caller. That depends on the caller's method
// and depth, but not on the site in it. So a context ends with its last frame without the site, one
// node for each. Several of the same method at the same depth are several nodes, as in the paper's
// Figure 7.
//
// As in the paper, a method's frame always has the same size, or it is found at several depths.
// That holds for one version of compiled code. If the depth of a frame is unknown, its activation
// says so, and links do not find it.
//
// Memory is bounded by Limit and LinkLimit. A full chain purges itself: it forgets everything, and
// Generation grows, so that its user can tell the source of walks to forget what was known.
//
// The zero value is empty and ready to use. One goroutine may teach while nobody looks up; any
// number may look up while nobody teaches.
type Chain[M, S comparable] struct {
	// Limit bounds the contexts; 0 means DefaultContexts.
	Limit int
	// LinkLimit bounds the different links, including those between the frames of walks; 0 means
	// DefaultLinks.
	LinkLimit int
	// Marker, if not nil, reports the methods that stand for frames that a walk did not reach. Such
	// an activation is the outermost of its stack. Contexts below it are never whole. They give way
	// to those that agree with them and reach further.
	Marker func(M) bool
	// Proof is how many walks must agree with the first one until a link is Steady. It may change
	// at any time, and applies to links that are first walked after that.
	Proof uint8

	contexts   Tree[frame[M, S]]
	learned    []learned // by NodeID of contexts
	links      linkTable[M, S]
	frames     []frame[M, S] // Walk's
	generation uint64
	refused    uint64
}

// frame is an activation as a child of its caller: with the site of the call that made it.
type frame[M, S comparable] struct {
	site   S // site in the caller; zero for an outermost frame
	method M
	depth  uint32
}

// learned is the data of a context in addition to the tree, 24 bytes.
type learned struct {
	walked uint64 // weight of the walks through this context, or any below it
	hop    hopID  // last hop of the context
	next   NodeID // the next context that ends with this hop; Root is the end
	parent NodeID
	cut    bool // the outermost frame is a marker
}

// Walk learns a whole context, innermost frame first, that was sampled weight times. The weight is
// evidence of how hot the context is and may be 0. Each frame but the leaf has the site of its
// call. Each has its depth unless that is 0.
//
// A stack without frames, or with more than the limits allow, is refused: Walk returns false and
// ChainStats.Refused counts it.
func (c *Chain[M, S]) Walk(stack []Activation[M, S], weight uint64) bool {
	if len(stack) == 0 || len(stack) > min(c.limit(), c.linkLimit()) {
		c.refused++
		return false
	}
	c.frames = c.frames[:0]
	for i, a := range stack {
		f := frame[M, S]{method: a.Method, depth: a.Depth}
		if i+1 < len(stack) {
			f.site = stack[i+1].Site
		}
		c.frames = append(c.frames, f)
	}
	if !c.learn(weight) {
		c.Purge()
		c.learn(weight) // an empty chain has room for it
	}
	return true
}

// learn adds c.frames to the contexts. It returns false, possibly with some of them added, if they
// do not fit.
func (c *Chain[M, S]) learn(weight uint64) bool {
	c.contexts.Limit = c.limit()
	leaf := c.contexts.Add(c.frames, weight)
	if c.contexts.Node(leaf).Depth < len(c.frames) {
		return false
	}
	if len(c.learned) == 0 {
		c.learned = append(c.learned, learned{})
	}
	for fresh := len(c.learned); fresh <= c.contexts.Len(); fresh++ {
		if !c.note(NodeID(fresh)) {
			return false
		}
	}
	c.judge(leaf)
	for id := leaf; id != Root; id = c.learned[id].parent {
		at := &c.learned[id]
		raise(&at.walked, weight)
		raise(&c.links.hops[at.hop].walked, weight)
	}
	return true
}

// note adds a new context to the list of its hop. It returns false if there is no room for the hop.
func (c *Chain[M, S]) note(id NodeID) bool {
	n := c.contexts.Node(id)
	at := learned{parent: n.Parent}
	caller := noSpot
	callee := c.links.addSpot(n.Key.method, n.Key.depth)
	if n.Parent != Root {
		caller = c.links.hops[c.learned[n.Parent].hop].callee
		at.cut = c.learned[n.Parent].cut
	} else {
		at.cut = c.Marker != nil && c.Marker(n.Key.method)
	}
	at.hop = c.links.addHop(callee, n.Key.site, caller, c.linkLimit())
	if at.hop == 0 {
		return false
	}
	hop := &c.links.hops[at.hop]
	at.next, hop.contexts = hop.contexts, id
	hop.count++
	c.learned = append(c.learned, at)
	return true
}

// Call learns that the link's caller calls its leaf, and how often: from bursts, which measure
// frequencies, or from samples. Only weights of calls of the same callee at the same depth are
// compared, because weights of samples must not be compared otherwise (section 6.1 of the paper).
// Links teach who may call whom. They also decide how ambiguous samples are divided where walks do
// not: see Place.
//
// A link without both depths is refused: Call returns false and ChainStats.Refused counts it.
func (c *Chain[M, S]) Call(link Link[M, S], weight uint64) bool {
	if link.Leaf.Depth == 0 || link.Caller.Depth == 0 {
		c.refused++
		return false
	}
	id := c.addLink(link)
	if id == 0 {
		c.Purge()
		id = c.addLink(link)
	}
	raise(&c.links.hops[id].calls, weight)
	return true
}

func (c *Chain[M, S]) addLink(link Link[M, S]) hopID {
	caller := c.links.addSpot(link.Caller.Method, link.Caller.Depth)
	callee := c.links.addSpot(link.Leaf.Method, link.Leaf.Depth)
	return c.links.addHop(callee, link.Caller.Site, caller, c.linkLimit())
}

// Room reports whether a stack with that many frames can be learned without forgetting anything.
func (c *Chain[M, S]) Room(frames int) bool {
	return c.contexts.Len()+frames <= c.limit() && c.links.len()+frames <= c.linkLimit()
}

// Purge forgets all contexts and links and keeps the memory. Older candidates lose their contexts.
func (c *Chain[M, S]) Purge() {
	c.contexts.Purge()
	c.learned = c.learned[:0]
	c.links.purge()
	c.generation++
}

// Generation returns how many times the chain forgot everything, by Purge or because it was full.
func (c *Chain[M, S]) Generation() uint64 { return c.generation }

func (c *Chain[M, S]) limit() int { return bound(c.Limit, DefaultContexts) }

func (c *Chain[M, S]) linkLimit() int { return bound(c.LinkLimit, DefaultLinks) }

// bound returns a limit that fits into the ids, which have 32 bits.
func bound(limit, byDefault int) int {
	if limit <= 0 {
		return byDefault
	}
	return min(limit, math.MaxInt32)
}

// An Activation is a stack frame with its method and its position on the stack. M identifies a
// method (one version of its code, as each version has its own frame size), S a call site in it.
type Activation[M, S comparable] struct {
	Method M
	Site   S      // site of the call to the next inner frame, in Method; not used for a leaf
	Depth  uint32 // bytes from the base of the stack to the frame's canonical frame address; 0: unknown
}

// A Link is what a sample shows without a walk of its stack: the quadruple of Inoue and Nakatani
// (OOPSLA 2009, section 6.1), {callee, its depth, caller, its depth}, and additionally the call
// site.
type Link[M, S comparable] struct {
	Leaf   Activation[M, S]
	Caller Activation[M, S] // zero if unknown
}

func (l Link[M, S]) called() bool { return l.Caller != Activation[M, S]{} }

// ChainStats are the columns of Table 1 of Inoue and Nakatani (OOPSLA 2009) that do not need
// samples, and further statistics of a Chain.
type ChainStats struct {
	Contexts int // nodes of the tree
	// Shared is the number of contexts whose last method has, at the same depth, several callers
	// that differ in method or depth, like D in the paper's Figure 7. Their callees cannot be
	// placed by {method, depth}.
	Shared  int
	Methods int // methods in the contexts, including markers
	Links   int // different ones, learned by Walk or Call

	Refused    uint64 // stacks and links that were not learned, since the beginning
	Generation uint64 // how many times everything was forgotten
}

// Stats returns the statistics, in one pass over the links.
func (c *Chain[M, S]) Stats() ChainStats {
	stats := ChainStats{
		Contexts:   c.contexts.Len(),
		Links:      c.links.len(),
		Refused:    c.refused,
		Generation: c.generation,
	}
	t := &c.links
	for _, at := range t.methods {
		walked := false
		for ; at != noSpot; at = t.spots[at].sibling {
			contexts, callers := 0, 0
			for id := t.spots[at].callers; id != 0; id = t.hops[id].nextCaller {
				if t.hops[id].caller != t.hops[t.spots[at].callers].caller {
					callers = 2 // or more
				}
				contexts += int(t.hops[id].count)
			}
			if callers > 1 && t.spots[at].depth != 0 {
				stats.Shared += contexts
			}
			walked = walked || contexts > 0
		}
		if walked {
			stats.Methods++
		}
	}
	return stats
}

const (
	// steadyLevels is how many callers of a leaf its link must determine: the same number that the
	// papers count.
	steadyLevels = 3
	// doubtWalks is how many walks in a row must agree with the expected context until a link is
	// trusted again after a mismatch.
	doubtWalks = 32
)

// Steady reports whether a link determines the first three callers: whether the latest walks with
// this link on top had the callers of its most walked context. After a walk with other callers, 32
// walks in a row must agree; after the first walk, Proof walks. A link that was never walked is
// steady, as nothing contradicts it.
func (c *Chain[M, S]) Steady(link Link[M, S]) bool {
	leaf := c.links.spot(link.Leaf.Method, link.Leaf.Depth)
	caller := c.links.spot(link.Caller.Method, link.Caller.Depth)
	hop := c.links.hop(leaf, link.Caller.Site, caller)
	return hop == 0 || c.links.hops[hop].doubt == 0
}

// judge compares a walk that ended with this leaf with the expected context of its link.
func (c *Chain[M, S]) judge(leaf NodeID) {
	hop := &c.links.hops[c.learned[leaf].hop]
	switch {
	case hop.heaviest == Root:
		hop.doubt = c.Proof
	case !c.alike(hop.heaviest, leaf):
		hop.doubt = max(doubtWalks, c.Proof)
	case hop.doubt > 0:
		hop.doubt--
	}
	if hop.heaviest == Root || c.contexts.Node(leaf).Self > c.contexts.Node(hop.heaviest).Self {
		hop.heaviest = leaf
	}
}

// alike reports whether two leaves of the same hop have the same callers as far as links must
// determine them.
func (c *Chain[M, S]) alike(a, b NodeID) bool {
	const known = 1 // the hop's caller
	x, y := Candidate[M, S]{Context: c.learned[a].parent}, Candidate[M, S]{Context: c.learned[b].parent}
	return c.common(&x, &y, steadyLevels-known, sameCall) == steadyLevels-known
}
