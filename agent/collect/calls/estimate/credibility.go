package estimate

import (
	"fmt"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Requirements on profiles. A median error beyond maxError would make most calls wrong by more than
// a third.
const (
	maxError       = 0.3
	minComparisons = 5
)

// medianSquare is the median of the square of a normally distributed number with variance 1.
const medianSquare = 0.455

// believe compares the profiles with what breakpoints observed, and puts the observations into the
// links. Variances of links without observations follow from the median error.
func believe(n *network, h *observations) profile.Credibility {
	type comparison struct{ error, hits float64 }
	var list []comparison
	total := 0.
	for i := range n.links {
		l := &n.links[i]
		j := h.pairs[pair{l.from, l.to}]
		if l.from == VM || l.profile <= 0 || j == nil {
			continue
		}
		if observed, _, ok := j.frequency(); ok {
			hits := min(j.entries, j.calls)
			r := math.Log(l.profile / observed)
			noise := medianSquare * (1/j.entries + 1/j.calls)
			list = append(list, comparison{math.Sqrt(max(r*r-noise, 0)), hits})
			total += hits
		}
	}
	c := profile.Credibility{Error: math.NaN(), Comparisons: len(list), Credible: true}
	slices.SortFunc(list, func(a, b comparison) int { return compareFloats(a.error, b.error) })
	sum := 0.
	for _, x := range list {
		if sum += x.hits; sum >= total/2 {
			c.Error = x.error
			break
		}
	}
	switch {
	case c.Comparisons < minComparisons:
		c.Why = fmt.Sprintf("the VM's counters are used, unchecked: %d comparisons with breakpoints are too few",
			c.Comparisons)
	case c.Error <= maxError:
		c.Why = fmt.Sprintf("the VM's counters are used: their median error is %.2f", c.Error)
	default:
		c.Credible = false
		c.Why = fmt.Sprintf("the VM's counters are not used: their median error is %.2f, more than %.2f", c.Error,
			maxError)
	}
	return c
}

// profileVariance is the variance of the logarithm of calls per entry according to profiles, in the
// middle of its distribution: most profiles are exact, others are from another phase of the
// program.
const profileVariance = 0.03

// How often a rarely taken branch is taken changes with what the program does: below this logarithm
// of calls per entry, the variance grows by rareness per square of the distance.
const (
	seldom   = -4.
	rareness = 0.2
)

// apply sets what links say about rates, depending on the credibility of the profiles.
func (n *network) apply(c *profile.Credibility, h *observations) {
	variance := profileVariance
	if c.Comparisons >= minComparisons {
		variance += c.Error * c.Error
	}
	for i := range n.links {
		l := &n.links[i]
		l.spread = variance
		if l.perEntry > 0 {
			rare := max(0, seldom-math.Log(l.perEntry))
			l.spread += rareness * rare * rare
		}
		if !c.Credible {
			l.perEntry = 0
		}
		if l.from == VM {
			continue
		}
		j := h.pairs[pair{l.from, l.to}]
		if j == nil {
			continue
		}
		observed, v, ok := j.frequency()
		if !ok {
			continue
		}
		// Two measurements of the same quantity. If they contradict each other, the profile is the
		// wrong one.
		if l.perEntry <= 0 || math.Abs(math.Log(l.perEntry/observed)) > 3*math.Sqrt(v+variance) {
			l.perEntry, l.spread = observed, v
		} else {
			a, b := 1/variance, 1/v
			l.perEntry = math.Exp((a*math.Log(l.perEntry) + b*math.Log(observed)) / (a + b))
			l.spread = 1 / (a + b)
		}
		l.covered = 1
	}
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
