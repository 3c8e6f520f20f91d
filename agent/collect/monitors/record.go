package monitors

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

// maxMeasurements bounds the windows recorded of a process: an hour of ten a second has 36,000,
// which is more than an estimate needs. When it is exceeded, the older half is dropped.
const maxMeasurements = 1 << 13

// A record is the observations of a process. Engine.mu guards all but plan against readers; plan
// belongs to the goroutine.
type record struct {
	plan         *plan
	threads      watch.Groups
	measurements []measurement
	losses       []missed // at most one of each second
}

// A missed counts windows without observations, within a second.
type missed struct {
	at      time.Duration // time of the first, CLOCK_MONOTONIC
	void    int           // code changed or threads ended during the watch, or the debug registers were in use
	skipped int           // the budget had no room
}

// maxLosses bounds the seconds with recorded missing windows, some two hours. When it is exceeded,
// the older half is dropped.
const maxLosses = 1 << 13

// lose counts missing windows at a moment. Moments must not decrease.
func (r *record) lose(at time.Duration, n missed) {
	if last := len(r.losses) - 1; last >= 0 && at-r.losses[last].at < time.Second {
		r.losses[last].void += n.void
		r.losses[last].skipped += n.skipped
		return
	}
	if len(r.losses) >= maxLosses {
		r.losses = slices.Clone(r.losses[maxLosses/2:])
	}
	n.at = at
	r.losses = append(r.losses, n)
}

// A measurement is the result of a window of one thread. For surveys it only has their cost.
type measurement struct {
	at     time.Duration // CLOCK_MONOTONIC
	group  string
	places []Place
	counts []int
	ran    time.Duration
	traps  time.Duration
	cost   time.Duration
	kinds  map[kind]int // hits with a class
}

// A kind is one class of objects at one place.
type kind struct {
	place Place
	class string
}

func (r *record) add(at time.Duration, group string, h *Observed) {
	m := measurement{at: at, group: group, counts: h.Result.Counts, ran: h.Result.Ran, traps: h.Result.Traps,
		cost: h.Result.Cost, kinds: map[kind]int{}}
	for _, s := range h.Window.Sites {
		m.places = append(m.places, s.Place)
	}
	for _, hit := range h.Result.Hits {
		if hit.Site < len(m.places) {
			m.kinds[kind{m.places[hit.Site], h.Classes[hit.Klass]}]++
		}
	}
	r.keep(m)
}

func (r *record) keep(m measurement) {
	if len(r.measurements) >= maxMeasurements {
		r.measurements = slices.Clone(r.measurements[maxMeasurements/2:])
	}
	r.measurements = append(r.measurements, m)
}

// An Acquisition is how often monitors of one class of objects were entered at one place.
type Acquisition struct {
	Place
	Class string  // "" if it could not be read
	Times float64 // estimated
	Hits  int     // hits of breakpoints: the base of the estimate
}

// A Summary is what acquisitions are estimated from.
type Summary struct {
	Windows int // measuring ones
	Hits    int
	Places  int           // places that were hit
	Cost    time.Duration // process CPU time for these windows and for surveys
	// Void is how many windows and surveys had no result: code changed, threads ended, or debug
	// registers were in use.
	Void    int
	Skipped int // windows and surveys without room in the budget
}

// Acquisitions estimates the acquisitions of a process between two moments of CLOCK_MONOTONIC, from
// observations between them: ordered by place and class.
func (e *Engine) Acquisitions(id proc.Identity, from, to time.Duration) ([]Acquisition, Summary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.guests[id]
	if r == nil {
		return nil, Summary{}
	}
	if err := r.threads.Refresh(e.opt.Root, id, e.opt.Now()); err != nil {
		e.opt.Log.Debug("cannot read threads", "pid", id.PID, "err", err) // it has ended: earlier readings count
	}
	return r.acquisitions(from, to)
}

func (r *record) acquisitions(from, to time.Duration) (all []Acquisition, sum Summary) {
	groups := map[string][]*measurement{}
	for i := range r.measurements {
		m := &r.measurements[i]
		if m.at < from || m.at >= to {
			continue
		}
		sum.Cost += m.cost
		if len(m.places) > 0 {
			groups[m.group] = append(groups[m.group], m)
			sum.Windows++
		}
	}
	for _, l := range r.losses {
		if l.at >= from && l.at < to {
			sum.Void += l.void
			sum.Skipped += l.skipped
		}
	}
	total := map[kind]Acquisition{}
	places := map[Place]bool{}
	for group, observed := range groups {
		h := r.threads.History(group)
		if h == nil {
			continue
		}
		seconds := h.Between(from, to).Seconds()
		for _, a := range ofGroup(observed) {
			k := kind{a.Place, a.Class}
			t := total[k]
			total[k] = Acquisition{a.Place, a.Class, t.Times + a.Times*seconds, t.Hits + a.Hits}
			places[a.Place] = true
			sum.Hits += a.Hits
		}
	}
	sum.Places = len(places)
	return slices.SortedFunc(maps.Values(total), func(a, b Acquisition) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.Class, b.Class))
	}), sum
}

// ofGroup estimates acquisitions per second of a group's CPU time.
func ofGroup(observed []*measurement) (all []Acquisition) {
	var places []Place
	index := map[Place]int{}
	observations := make([]Observation, len(observed))
	hits, kinds := map[Place]int{}, map[kind]int{}
	for i, m := range observed {
		o := &observations[i]
		o.Ran, o.Traps = m.ran.Seconds(), m.traps.Seconds()
		for k, place := range m.places {
			if _, known := index[place]; !known {
				index[place] = len(places)
				places = append(places, place)
			}
			o.Sites, o.Counts = append(o.Sites, index[place]), append(o.Counts, float64(m.counts[k]))
		}
		for k, n := range m.kinds {
			hits[k.place] += n
			kinds[k] += n
		}
	}
	rates := Rates(len(places), observations)
	for i, place := range places {
		if rates[i] > 0 && hits[place] == 0 { // only hit in windows that were full
			hits[place], kinds[kind{place, ""}] = 1, 1
		}
	}
	for k, n := range kinds {
		times := rates[index[k.place]] * float64(n) / float64(hits[k.place])
		all = append(all, Acquisition{k.place, k.class, times, n})
	}
	return all
}
