package events

import "time"

// A planLoad is the rate and cost of a plan's events.
type planLoad struct {
	plan  *attachedPlan
	hits  uint64        // since it was attached
	rate  float64       // a second, recently
	count time.Duration // of a hit without a record
	full  float64       // CPUs, if all hits were recorded
}

type planLoads []planLoad

// loads returns the loads of the governed plans, in the time since their hits were last read, or in the last slice in which they were
// observed; mu is held.
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

// part returns a plan's part of its kind's budget: its fraction of the full cost of all plans of the kind. So all of them record about one
// hit in the same number.
func (list planLoads) part(l planLoad) float64 {
	all := 0.0
	for _, other := range list {
		if other.plan.kind == l.plan.kind {
			all += other.full
		}
	}
	if all == 0 {
		return 1
	}
	return l.full / all
}
