package events

import "time"

// A planLoad is how often the events of a plan happen.
type planLoad struct {
	plan  *attachedPlan
	hits  uint64        // since it was attached
	rate  float64       // a second, recently
	count time.Duration // what a hit takes that is not recorded
	full  float64       // CPUs, if all were recorded
}

type planLoads []planLoad

// loads are those of the plans that are governed, in the time since their hits were last taken down, or in the last slice in
// which they were observed; mu is held.
func (e *Probes) loads(passed time.Duration) (list planLoads) {
	for _, p := range e.plans {
		if p.unbound() {
			continue
		}
		hits, err := e.hitsOf(p)
		if err != nil {
			continue
		}
		if p.idle { // nothing is recorded; hits are governed by the plan of the process that has them
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

// part is how much of its kind's budget a plan may take: as much as it would take of what all plans of the kind would, so
// that of all one hit in about as many is recorded.
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
