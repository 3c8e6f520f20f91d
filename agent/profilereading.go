package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A profileReading is what methods' counters said when they were read.
type profileReading struct {
	at      time.Duration // CLOCK_MONOTONIC
	counted map[uint64]methodCounts
	// whole says that all methods of the VM were read: those that are not in counted had not been called until then.
	whole bool
}

// methodCounts are how often a method had been invoked, and its calls made.
type methodCounts struct {
	at          time.Duration // CLOCK_MONOTONIC, when they were read
	invocations uint64        // those before its calls were counted and those of code that counts no calls included
	calls       []siteCount   // by ascending bytecode index; those that had not been made may be missing
	unknown     bool          // the VM counts, and it could not be read
}

// A siteCount is how often what is called at a bytecode index had been called.
type siteCount struct {
	bci   int
	count uint64
}

// of is how often the call at a bytecode index had been made.
func (c *methodCounts) of(bci int) uint64 {
	i, ok := slices.BinarySearchFunc(c.calls, bci, func(s siteCount, bci int) int { return cmp.Compare(s.bci, bci) })
	if !ok {
		return 0
	}
	return c.calls[i].count
}

// readAll reads the counters of all methods. Those that are never invoked before are known by their absence.
func readAll(vm vmruntime.MethodCounter) (r profileReading, err error) {
	methods, err := vm.Methods()
	if err != nil {
		return r, err
	}
	counts, took, err := vm.Counts(methods)
	if err != nil {
		return r, err
	}
	r = profileReading{at: monotonic() - took/2, counted: make(map[uint64]methodCounts, len(counts)), whole: true}
	for i := range counts {
		m := &counts[i]
		c := methodCounts{at: r.at, invocations: m.Invocations + m.Before, unknown: m.Unreadable}
		for _, s := range m.Sites {
			n := s.Others
			for _, row := range s.Rows {
				n += row.Count
			}
			c.calls = append(c.calls, siteCount{s.BCI, n})
		}
		if c.invocations > 0 || len(c.calls) > 0 || c.unknown {
			r.counted[m.Method] = c
		}
	}
	return r, nil
}

// shortestReading is the least time between readings from which rates follow.
const shortestReading = 100 * time.Millisecond

// rates fills in how often a second the VM counted an invocation, and each call, since the reading; nothing if that is not
// known.
func (r *profileReading) rates(p *vmruntime.MethodProfile, now time.Duration, to *estimate.Profile) {
	before, ok := r.counted[p.Method]
	if !ok {
		if !r.whole {
			return
		}
		before.at = r.at
	}
	invocations := p.Invocations + p.Before
	if before.unknown || !p.Counted || invocations < before.invocations || now-before.at < shortestReading {
		return
	}
	seconds := (now - before.at).Seconds()
	for i := range p.Calls {
		if p.Calls[i].Count < before.of(p.Calls[i].BCI) {
			return
		}
	}
	to.Known, to.Rate = true, float64(invocations-before.invocations)/seconds
	for i := range p.Calls {
		to.Sites[i].Rate = float64(p.Calls[i].Count-before.of(p.Calls[i].BCI)) / seconds
	}
}

// replace makes the reading one of these profiles.
func (r *profileReading) replace(profiles map[uint64]*vmruntime.MethodProfile, now time.Duration) {
	*r = profileReading{at: now, counted: make(map[uint64]methodCounts, len(profiles))}
	for m, p := range profiles {
		if !p.Counted {
			continue
		}
		c := methodCounts{at: now, invocations: p.Invocations + p.Before}
		for i := range p.Calls {
			if n := p.Calls[i].Count; n > 0 {
				c.calls = append(c.calls, siteCount{p.Calls[i].BCI, n})
			}
		}
		r.counted[m] = c
	}
}

// merge adds what another reading says of methods that r says nothing of. Who has a copy of r has it as it was.
func (r *profileReading) merge(later *profileReading) {
	switch {
	case r.counted == nil:
		*r = *later
		return
	case r.whole: // what is not in it had not been called
		return
	}
	merged := maps.Clone(r.counted)
	for m, c := range later.counted {
		if _, known := merged[m]; !known && len(merged) < maxCountsKept {
			merged[m] = c
		}
	}
	r.counted = merged
}
