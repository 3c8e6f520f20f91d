package engines

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// An estimator is an engine without records of calls. It estimates them for a window when that is
// closed.
type estimator interface {
	Estimate(context.Context, *source.Closed) map[*fold.Process]calls.Estimated
	// Credibility returns the credibility of VMs' counts of calls, by service.
	Credibility() map[string]profile.Credibility
}

// Fill estimates calls before the parts of processes are made, which removes the samples from the
// window.
func (e *Engines) Fill(ctx context.Context, w *source.Closed, p *profile.Profile) source.Part {
	var guests map[*fold.Process]calls.Estimated
	if e.estimator != nil {
		guests = e.estimator.Estimate(ctx, w)
	}
	return source.Part{Finish: func() { e.addTo(p, w, guests) }}
}

// addTo adds the calls of a closed window to its profile. Losses, hits and cost in its comments are
// counted since the agent began, and the comments say so.
func (e *Engines) addTo(p *profile.Profile, w *source.Closed, guests map[*fold.Process]calls.Estimated) {
	rates := fold.Get(e.Owner, func(*fold.State) map[string]profile.Rate { return maps.Clone(e.rates) })
	for i, proc := range w.Processes {
		out := p.Processes[i]
		if s := w.Calls[proc]; s != nil {
			e.Resolver.Attempt(guest.StageWindow, proc.Process, func() {
				names := proc.Names()
				defer names.Close()
				out.Calls = s.Profile(names, rates)
			})
		}
		if g, ok := guests[proc]; ok {
			out.Calls = append(out.Calls, g.Calls...)
			out.Inlining = g.Inlining
			out.Extents = profile.AddExtents(out.Extents, g.Extent)
			if len(g.Calls) > 0 {
				p.Comments = append(p.Comments, fmt.Sprintf("calls of process %d are estimated, with %s: %s",
					proc.PID, stored.Plural(int(g.Windows), "watch"), g.Credibility.Why))
			}
			if g.Note != "" {
				p.Comments = append(p.Comments, g.Note)
			}
		}
	}
	p.Comments = append(p.Comments, e.account())
	for _, engine := range e.running {
		if c := engine.Cost(); c.Hits > 0 {
			p.Comments = append(p.Comments, fmt.Sprintf("engine %s: %s of %v each, %v of the processes' CPU time in "+
				"total since the agent started",
				engine.Name(), stored.Plural(int(c.Hits), "hit"), c.HitTime, c.Time()))
		}
	}
	failed := 0
	for _, g := range guests {
		if g.Failed {
			failed++
		}
	}
	p.Comments = append(p.Comments, e.notes(p, failed)...)
}

// account is one line on the sampled calls since the agent began, and on the budget.
func (e *Engines) account() string {
	c, err := e.Objects.ReadCounts()
	if err != nil {
		return fmt.Sprintf("sampled calls: cannot read the counters: %v", err)
	}
	s := e.stats(&c)
	lost, total := []string{}, uint64(0)
	for _, causes := range []map[string]uint64{s.Dropped, s.Discarded} {
		for _, cause := range slices.Sorted(maps.Keys(causes)) {
			if n := causes[cause]; n > 0 {
				lost = append(lost, fmt.Sprintf("%s %d", cause, n))
				total += n
			}
		}
	}
	line := fmt.Sprintf("sampled calls since the agent started: %d, %d lost", s.Folded, total)
	if total > 0 {
		line += " (" + strings.Join(lost, ", ") + ")"
	}
	if s.GuestTime > 0 {
		line += fmt.Sprintf("; by the agent's own account they used %.2f%% of the processes' CPU time; the budget is "+
			"%.2f%%", 100*s.Cost().Seconds()/s.GuestTime.Seconds(), 100*s.Budget)
		for _, engine := range e.running {
			if engine.Unlimited(e.opt.Rate) {
				line += fmt.Sprintf(" (engine %s has no budget, because all of its rate is fixed)", engine.Name())
			}
		}
	}
	return line
}
