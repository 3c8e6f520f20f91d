package estimate

import (
	"cmp"
	"slices"
)

// Bounds of windows on codes that nothing is known of but time.
const (
	exploreLength = 6e-3  // seconds
	exploreRate   = 200e3 // calls a second; hotter codes are tried if that is not sure
	exploreSure   = 10    // samples in the code that make it so
	exploreTries  = 2     // windows
	exploreHits   = 24    // of a window: enough to see that a code is called often
	exploreHeard  = 2e-3  // seconds, of a window that was silent: a shorter one says nothing
)

// doubtful reports whether a code may be called far less than is thought: it was hardly seen, and hardly listened to.
func (p *planner) doubtful(c CodeID) bool {
	hot := p.rates[c].PerSecond > exploreRate && p.network.spent[c].samples >= exploreSure
	return !hot && p.tried(c) < exploreTries
}

// tried is how many windows said something of a code.
func (p *planner) tried(c CodeID) (n int) {
	for _, s := range p.heard.codes[c].windows {
		if s.full || s.hits > 0 || s.free >= exploreHeard {
			n++
		}
	}
	return n
}

// explore plans windows on codes that were hardly listened to, those first that are thought to be called most: without
// many samples, that is where an error does most harm. Most of them are found to be silent, which costs nothing.
func (p *planner) explore() []Request {
	var list []CodeID
	for c := range p.rates {
		if id := CodeID(c); p.rates[c].PerSecond > 0 && p.in.Codes[c].breakable() && p.doubtful(id) {
			list = append(list, id)
		}
	}
	slices.SortStableFunc(list, func(a, b CodeID) int {
		return cmp.Or(cmp.Compare(p.tried(a), p.tried(b)), cmp.Compare(p.rates[b].PerSecond, p.rates[a].PerSecond))
	})
	var plan []Request
	for codes := range slices.Chunk(list, p.Codes) {
		if len(plan) == p.Windows {
			break
		}
		plan = append(plan, Request{Codes: codes, MaxHits: min(exploreHits, p.MaxHits), Duration: min(exploreLength, p.MaxDuration)})
	}
	return plan
}
