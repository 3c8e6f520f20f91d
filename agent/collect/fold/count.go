package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Count counts the samples of one thread in one window by how their contexts were found.
type Count struct {
	Walked, Linked uint64
	Placed         [profile.Certainties]uint64        // linked samples, by the certainty of their context
	Checked        uint64                             // linked samples whose context was compared with a walk
	Right          [len(profile.ContextLevels)]uint64 // right ones of Checked, by profile.ContextLevels
}

// Add adds the counts of another thread.
func (n *Count) Add(other *Count) {
	n.Walked += other.Walked
	n.Linked += other.Linked
	n.Checked += other.Checked
	for i, v := range other.Placed {
		n.Placed[i] += v
	}
	for i, v := range other.Right {
		n.Right[i] += v
	}
}

// check counts linked samples whose context was compared with a walk.
func (n *Count) check(weight uint64, right [len(profile.ContextLevels)]bool) {
	n.Checked += weight
	for i, ok := range right {
		if ok {
			n.Right[i] += weight
		}
	}
}

// rightCallers reports, by ContextLevels, whether a context that was found has the callers of the
// walked one.
func rightCallers[F any](found, walked []F, same func(a, b F) bool) (right [len(profile.ContextLevels)]bool) {
	for i, levels := range profile.ContextLevels {
		right[i] = sameCallers(found, walked, levels, same)
	}
	return right
}

// sameCallers reports whether two stacks, innermost frame first, have the same callers for that
// many levels, or up to the outermost frame if that is nearer. 0 means all levels.
func sameCallers[F any](a, b []F, levels int, same func(a, b F) bool) bool {
	for i := 1; levels == 0 || i <= levels; i++ {
		if i >= len(a) || i >= len(b) {
			return len(a) == len(b)
		}
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameCall compares two callers, regardless of depth.
func sameCall(a, b activation) bool { return a.Method == b.Method && a.Site == b.Site }

// Contexts reports how the contexts of a process were found in a closed window; nil if all were
// walked.
func (o *Owner) Contexts(
	p *Process, threads map[ThreadKey]*Thread, mode profile.ContextMode, check bool,
) *profile.Contexts {
	if mode == profile.ContextWalk {
		return nil
	}
	var sum Count
	for _, t := range threads {
		sum.Add(&t.Count)
	}
	c := &profile.Contexts{
		Mode: mode, Walked: sum.Walked, Linked: sum.Linked,
		Ambiguous: sum.Placed[profile.Ambiguous], Fitted: sum.Placed[profile.Fitted],
		Unplaced: sum.Placed[profile.Unplaced],
	}
	if check {
		c.Check = &profile.ContextCheck{Samples: sum.Checked, Right: sum.Right}
	}
	if mode == profile.ContextChain {
		o.measure(c, p, threads)
	}
	return c
}

// measure fills in Table 1 of Inoue and Nakatani. It borrows the State for short periods.
func (o *Owner) measure(c *profile.Contexts, p *Process, threads map[ThreadKey]*Thread) {
	var links Tree
	for _, t := range threads {
		links.Merge(&t.Links)
	}
	var m *measurement
	o.Do(func(*State) {
		if known := p.Chaining; known != nil {
			stats := known.Chain.Stats()
			c.Nodes, c.Shared, c.Methods = stats.Contexts, stats.Shared, stats.Methods
			m = &measurement{known: known, links: &links, to: c, last: cct.Root}
			if p.measuring == nil {
				p.measuring = map[*measurement]struct{}{}
			}
			p.measuring[m] = struct{}{}
		}
	})
	if m == nil {
		return
	}
	for Get(o, func(*State) (more bool) {
		for until := proc.Monotonic() + loanTime; m.step(); {
			if proc.Monotonic() > until {
				return true
			}
		}
		return false
	}) {
	}
	o.Do(func(*State) { delete(p.measuring, m) })
}

// A measurement compares links with the known contexts of their process. It belongs to the holder
// of the State.
type measurement struct {
	known *Chaining
	links *Tree
	to    *profile.Contexts
	last  cct.NodeID // the node that was compared last
}

// step compares one link. It returns false once there is none left.
func (m *measurement) step() (more bool) {
	if int(m.last) >= m.links.Len() {
		return false
	}
	m.last++
	if n := m.links.Node(m.last).Self; n > 0 {
		m.known.compare(m.to, m.links.Stack(m.last), n)
	}
	return true
}

// finish takes all remaining steps, because the known contexts are about to be forgotten.
func (m *measurement) finish() {
	for m.step() {
	}
}

// compare adds n samples of a link, a key of Thread.Links.
func (c *Chaining) compare(to *profile.Contexts, link []guest.RawFrame, n uint64) {
	byDepth, bySite := c.Agreement(link)
	for i, levels := range profile.ContextLevels {
		if byDepth.Whole || levels > 0 && byDepth.Levels >= levels {
			to.ByDepth[i] += n
		}
		if bySite.Whole || levels > 0 && bySite.Levels >= levels {
			to.BySite[i] += n
		}
	}
}
