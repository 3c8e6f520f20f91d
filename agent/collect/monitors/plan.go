package monitors

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

const (
	// surveyLength and windowLength are the lengths of windows, unless MaxHits ends them. Long ones
	// cost no more, as the hits are bounded, and show more of what is rare; a time slice of the
	// scheduler is about as long.
	surveyLength = 5 * time.Millisecond
	windowLength = 10 * time.Millisecond
	// surveyThreads are watched at once in a survey: the busiest ones. Arming more threads takes
	// longer than a survey lasts.
	surveyThreads = 32
	// surveyEvery: one window in this many is a survey, once every site has had one. A site without
	// hits in one window may still be active.
	surveyEvery = 4
	// aloneEvery: one window in this many is on one site, to get a time that only its own traps
	// stretch.
	aloneEvery = 3
)

// A pair is a site and the group of threads that enters monitors there.
type pair struct {
	group string
	place Place
}

// A standing is the measurements of a pair.
type standing struct {
	windows int     // windows that measured it
	hits    float64 // hits in those windows
	time    float64 // seconds of these windows outside of traps
}

// rate is about how often the site is entered, per second: good enough to sort sites.
func (s *standing) rate() float64 {
	if s.time == 0 {
		return 0
	}
	return s.hits / s.time
}

// A plan chooses what to watch in one process. Surveys watch sites in all busy threads, to learn
// which groups of threads enter monitors there; the other windows measure such pairs, in one
// thread.
type plan struct {
	surveyed map[Place]int
	live     map[pair]*standing
	turn     int // windows of all kinds so far
}

func newPlan() *plan { return &plan{surveyed: map[Place]int{}, live: map[pair]*standing{}} }

// fresh reports whether there are sites without a survey.
func (p *plan) fresh(sites []Site) bool {
	return slices.ContainsFunc(sites, func(s Site) bool { return p.surveyed[s.Place] == 0 })
}

// retain drops sites that no longer exist.
func (p *plan) retain(sites []Site) {
	there := make(map[Place]bool, len(sites))
	for i := range sites {
		there[sites[i].Place] = true
	}
	for place := range p.surveyed {
		if !there[place] {
			delete(p.surveyed, place)
		}
	}
	for pair := range p.live {
		if !there[pair.place] {
			delete(p.live, pair)
		}
	}
}

// next chooses a window; false if there is nothing to watch. The group is "" in a survey.
func (p *plan) next(sites []Site, c *watch.Groups) (w Window, group string, ok bool) {
	p.turn++
	survey := p.turn%surveyEvery == 0 || p.turn%2 == 0 && p.fresh(sites)
	if !survey {
		if w, group, ok = p.measure(sites, c); ok {
			return w, group, true
		}
	}
	w = p.survey(sites, c)
	return w, "", len(w.Sites) > 0 && len(w.Threads) > 0
}

// survey chooses the sites with the fewest surveys.
func (p *plan) survey(sites []Site, c *watch.Groups) Window {
	order := slices.Clone(sites)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	slices.SortStableFunc(order, func(a, b Site) int { return cmp.Compare(p.surveyed[a.Place], p.surveyed[b.Place]) })
	order = order[:min(len(order), MaxSites)]
	for _, s := range order {
		p.surveyed[s.Place]++
	}
	return Window{Sites: order, Threads: c.Busiest(surveyThreads), Duration: surveyLength}
}

// measure chooses a thread, and among the sites where its group enters monitors the least measured
// one, with its neighbours in order of their rates. Next to a far hotter site, it would not be hit
// before the window's end.
func (p *plan) measure(sites []Site, c *watch.Groups) (w Window, group string, ok bool) {
	groups := map[string]bool{}
	for pair := range p.live {
		groups[pair.group] = true
	}
	tid, ok := c.DrawOf(func(group string) bool { return groups[group] })
	if !ok {
		return w, "", false
	}
	group, _ = c.Lookup(tid)
	of := func(s Site) *standing { return p.live[pair{group, s.Place}] }
	live := slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return of(s) == nil })
	if len(live) == 0 {
		return w, "", false
	}
	rand.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	slices.SortStableFunc(live, func(a, b Site) int { return cmp.Compare(of(b).rate(), of(a).rate()) })
	target := 0
	for i := range live {
		if of(live[i]).windows < of(live[target]).windows {
			target = i
		}
	}
	from, to := target, target+1
	if rand.IntN(aloneEvery) > 0 {
		from = max(0, min(target-1, len(live)-MaxSites))
		to = min(from+MaxSites, len(live))
	}
	return Window{Sites: live[from:to], Threads: []int{tid}, Duration: windowLength}, group, true
}

// learn learns from a survey which groups enter monitors at which sites.
func (p *plan) learn(w Window, r Result, c *watch.Groups) {
	for _, h := range r.Hits {
		if group, known := c.Lookup(h.Thread); known && h.Site < len(w.Sites) {
			key := pair{group, w.Sites[h.Site].Place}
			if p.live[key] == nil {
				p.live[key] = &standing{}
			}
		}
	}
}

// measured records the result of a window of one thread.
func (p *plan) measured(w Window, group string, r Result) {
	const least = 0.02 // the minimum fraction of a window's time that is the thread's own, roughly
	left := max((r.Ran - r.Traps).Seconds(), least*r.Traps.Seconds())
	for i, s := range w.Sites {
		if own := p.live[pair{group, s.Place}]; own != nil {
			own.windows++
			own.hits += float64(r.Counts[i])
			own.time += left
		}
	}
}
