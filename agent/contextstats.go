package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// contextsOf tells how the contexts of a process were found in a window that is closed; nil if all were walked.
func (a *Agent) contextsOf(p *fold.Process, threads map[fold.ThreadKey]*fold.Thread) *profile.Contexts {
	if a.opt.Contexts == profile.ContextWalk {
		return nil
	}
	var sum fold.Count
	for _, t := range threads {
		sum.Add(&t.Count)
	}
	c := &profile.Contexts{
		Mode: a.opt.Contexts, Walked: sum.Walked, Linked: sum.Linked,
		Ambiguous: sum.Placed[profile.Ambiguous], Fitted: sum.Placed[profile.Fitted], Unplaced: sum.Placed[profile.Unplaced],
	}
	if a.opt.CheckContexts {
		c.Check = &profile.ContextCheck{Samples: sum.Checked, Right: sum.Right}
	}
	if a.opt.Contexts == profile.ContextChain {
		a.measureContexts(c, p, threads)
	}
	return c
}

// measureContexts fills in Table 1 of Inoue and Nakatani. Like Agent.place it does not hold agent.mu for long.
func (a *Agent) measureContexts(c *profile.Contexts, p *fold.Process, threads map[fold.ThreadKey]*fold.Thread) {
	var links fold.Tree
	for _, t := range threads {
		links.Merge(&t.Links)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := p.Chaining
	if known == nil {
		return
	}
	stats := known.Chain.Stats()
	c.Nodes, c.Shared, c.Methods = stats.Contexts, stats.Shared, stats.Methods
	for id, n := range links.Nodes() {
		if n.Self == 0 || id == cct.Root {
			continue
		}
		a.mu.Unlock()
		a.mu.Lock()
		byDepth, bySite := known.Agreement(links.Stack(id))
		for i, levels := range profile.ContextLevels {
			if byDepth.Whole || levels > 0 && byDepth.Levels >= levels {
				c.ByDepth[i] += n.Self
			}
			if bySite.Whole || levels > 0 && bySite.Levels >= levels {
				c.BySite[i] += n.Self
			}
		}
	}
}
