package probes

import (
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
)

// A planLoad is the rate and cost of a plan's events.
type planLoad struct {
	plan  *attachedPlan
	hits  uint64        // since it was attached
	rate  float64       // a second, recently
	count time.Duration // time that a hit without a record takes
	full  float64       // CPUs, if all hits were recorded
}

type planLoads []planLoad

// loads returns the loads of the governed plans, in the time since their hits were last read, or in
// the last slice in which they were observed; mu is held.
func (e *Probes) loads(passed time.Duration) (list planLoads) {
	for _, p := range e.plans {
		if p.unbound() {
			continue
		}
		hits, err := e.hitsOf(p)
		if err != nil {
			continue
		}
		if p.idle { // nothing is recorded; hits are governed by the plan of their own process
			p.hits = hits
			continue
		}
		l := planLoad{plan: p, hits: hits, rate: p.rate, count: e.countTime(p)}
		if p.duty.Always() {
			l.rate = float64(hits-p.hits) / passed.Seconds()
		}
		l.full = l.rate * (l.count + e.recordTime(p)).Seconds()
		list = append(list, l)
	}
	return list
}

// within returns the loads of GovernEvery as they are if their hits were those of another time.
func (list planLoads) within(passed time.Duration) planLoads {
	list = slices.Clone(list)
	for i, l := range list {
		if l.plan.duty.Always() {
			list[i] = l.times(GovernEvery.Seconds() / passed.Seconds())
		}
	}
	return list
}

// times is the load if there were so many times as many hits.
func (l planLoad) times(n float64) planLoad {
	l.rate, l.full = n*l.rate, n*l.full
	return l
}

// headroom is how many times its need a plan is given of its kind's budget where others need more:
// what was measured is the last second's, and a plan that needs all it has would be thinned out for
// a few hits more.
const headroom = 1.1

// need is how many CPUs a plan needs so that all of its hits are recorded while it is observed all
// the time.
func (l *planLoad) need() float64 {
	return headroom * max(l.full, budget.Passing(l.rate, l.count))
}

// part is how much of its kind's budget a plan may take. The budget is divided max-min fair: a plan
// with few hits is recorded whole, however many another plan of the kind has. Plans of one process
// divide the budget of that process.
func (e *Probes) part(list planLoads, l planLoad) float64 {
	var needs []float64
	which := -1
	for i := range list {
		other := &list[i]
		if other.plan.kind != l.plan.kind || other.plan.process != l.plan.process {
			continue
		}
		if other.plan == l.plan {
			which = len(needs)
			other = &l
		}
		needs = append(needs, other.need())
	}
	if which < 0 {
		return 1
	}
	all := e.allowance(l.plan.kind, 1, 1).CPUs(max(e.cpusOf(l.plan), 1e-9))
	if part := budget.Divide(all, needs)[which]; part > 0 {
		return part / all
	}
	return 1
}
