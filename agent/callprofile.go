package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// A callEstimator is an engine that has no records of calls. It estimates them for a window when that is closed.
type callEstimator interface {
	// estimate returns the calls of one guest in a window.
	estimate(context.Context, estimateTask) (estimated, error)
	// credibility of what VMs count of calls, by service.
	credibility() map[string]profile.Credibility
}

// estimate estimates the calls of all guests in a window that was closed, before its trees are named.
func (e *callEngines) estimate(ctx context.Context, w *Window, processes []*fold.Process) map[*fold.Process]estimated {
	if e.estimator == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, estimateDeadline)
	defer cancel()
	all := map[*fold.Process]estimated{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range processes {
		t := w.estimateTask(p, w.ended)
		if len(t.top.Edges) == 0 {
			continue
		}
		if t.top.All < leastSamples {
			all[p] = estimated{note: fmt.Sprintf("calls of process %d are not estimated: %.0f samples are too few", p.PID, t.top.All)}
			continue
		}
		wg.Go(func() { // as many at once as there are workers
			out, err := e.estimator.estimate(ctx, t)
			if err != nil {
				out = estimated{failed: true, note: fmt.Sprintf("calls of process %d are not estimated: %v", p.PID, err)}
				if errors.Is(err, context.DeadlineExceeded) {
					out.note = fmt.Sprintf("calls of process %d are not estimated: the estimate was not ready in time, because the machine is busy or the "+
						"JVM is large", p.PID)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all[p] = out
		})
	}
	wg.Wait()
	return all
}

// addTo puts the calls of a window that was closed into its profile. They are those of the window; what its comments say
// of losses, hits and cost is counted since the agent began, and they say so.
func (e *callEngines) addTo(p *profile.Profile, w *Window, processes []*fold.Process, guests map[*fold.Process]estimated) {
	a := e.agent
	a.mu.Lock()
	rates := maps.Clone(e.rates)
	a.mu.Unlock()
	for i, proc := range processes {
		out := p.Processes[i]
		if s := w.calls[proc]; s != nil {
			a.resolver.Attempt(target.StageWindow, proc.Process, func() {
				names := proc.Names()
				defer names.Close()
				out.Calls = s.Profile(names, rates)
			})
		}
		if g, ok := guests[proc]; ok {
			out.Calls = append(out.Calls, g.calls...)
			if len(g.calls) > 0 {
				p.Comments = append(p.Comments, fmt.Sprintf("calls of process %d are estimated, with %d windows of breakpoints: %s",
					proc.PID, g.windows, g.credibility.Why))
			}
			if g.note != "" {
				p.Comments = append(p.Comments, g.note)
			}
		}
	}
	p.Comments = append(p.Comments, e.account())
	for _, engine := range e.running {
		if c := engine.Cost(); c.Hits > 0 {
			p.Comments = append(p.Comments, fmt.Sprintf("engine %s: %d hits of %v each, %v of the processes' CPU time in all since the agent began",
				engine.Name(), c.Hits, c.HitTime, c.Time()))
		}
	}
	failed := 0
	for _, g := range guests {
		if g.failed {
			failed++
		}
	}
	p.Comments = append(p.Comments, e.notes(p, failed)...)
}

// account is one line on what became of sampled calls since the agent began, and of the budget.
func (e *callEngines) account() string {
	c, err := e.agent.objects.ReadCounts()
	if err != nil {
		return fmt.Sprintf("sampled calls: not known: %v", err)
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
	line := fmt.Sprintf("sampled calls since the agent began: %d, %d lost", s.Folded, total)
	if total > 0 {
		line += " (" + strings.Join(lost, ", ") + ")"
	}
	if s.GuestTime > 0 {
		line += fmt.Sprintf("; by the agent's own account they used %.2f%% of the processes' CPU time; the budget is %.2f%%", 100*s.Cost().Seconds()/s.GuestTime.Seconds(), 100*s.Budget)
		for _, engine := range e.running {
			if engine.Unlimited(e.opt.Rate) {
				line += fmt.Sprintf(" (engine %s has no budget, because all of its rate is fixed)", engine.Name())
			}
		}
	}
	return line
}
