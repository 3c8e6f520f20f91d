package estimate

// A Budget says how much may be listened to until the next Plan.
type Budget struct {
	Windows     int     // how many of them
	Hits        float64 // that are to be expected in all of them
	Codes       int     // that one window may have: breakpoints of a thread
	MaxHits     int     // of one window
	MaxDuration float64 // of one window, seconds
}

// A Request is a window that would help.
type Request struct {
	Codes    []CodeID
	MaxHits  int     // when to end at the latest
	Duration float64 // seconds, likewise
	// Check is for windows of a caller, the first code, and its callee: they tell how far profiles can be trusted,
	// and may end full. Others are to tell how often each of their codes is called.
	Check bool
}

// Plan returns the windows that are likely to tell most about the rates that matter most, given what is known already:
// in was estimated with result r, and has all windows so far. A rate can only be heard of codes that are called
// rarely; but the profiles carry it on, from callers to callees and back. So those are chosen from which the way to
// the codes with most calls is shortest, in variance.
func Plan(in *Input, r *Result, b Budget) []Request {
	if r.network == nil || b.Codes < 1 || b.MaxHits < 1 || !(b.MaxDuration > 0) {
		return nil
	}
	p := newPlanner(in, r, b)
	// Checks are few: profiles are right or wrong.
	kinds := [...][]Request{p.anchors(), p.explore(), p.checks()}
	turns := [...]int{0, 1, 0, 2, 0, 1}
	var plan []Request
	for turn := 0; len(plan) < b.Windows && len(kinds[0])+len(kinds[1])+len(kinds[2]) > 0; turn++ {
		next := &kinds[turns[turn%len(turns)]]
		if len(*next) == 0 {
			continue
		}
		request := (*next)[0]
		*next = (*next)[1:]
		if hits := p.expect(request); hits <= p.hits {
			p.hits -= hits
			plan = append(plan, request)
		}
	}
	return plan
}

// A planner knows what a window costs and what it would tell.
type planner struct {
	Budget
	hits    float64 // that are left
	in      *Input
	network *network
	rates   []Rate
	heard   *hearing
	total   float64 // calls a second
}

func newPlanner(in *Input, r *Result, b Budget) *planner {
	p := &planner{Budget: b, hits: b.Hits, in: in, network: r.network, rates: r.Rates, heard: listen(in)}
	for _, rate := range r.Rates {
		p.total += rate.PerSecond
	}
	return p
}

// expect is how many hits a window is likely to have.
func (p *planner) expect(r Request) float64 {
	hits := 0.
	for _, c := range r.Codes {
		hits += p.rates[c].PerSecond * r.Duration
	}
	return min(hits, float64(r.MaxHits))
}
