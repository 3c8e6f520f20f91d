package sink

import (
	"cmp"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// A tally is what some events add up to.
type tally struct {
	values [profile.MaxEventValues]float64 // as profile.EventKind.Values says
	events float64
	// variance is that of the main value. The n events of a sample, of about equal weight w, are a Poisson number of them,
	// so that the variance of their sum n w is n w², which is value²/n. Values that were not estimated have none.
	variance float64
}

func (t *tally) add(other tally) {
	for i, v := range other.values {
		t.values[i] += v
	}
	t.events += other.events
	t.variance += other.variance
}

// normal95 is how many standard deviations to either side hold 95 % of a normal distribution.
const normal95 = 1.96

// leastEvents are so many that their number is about normally distributed. Where fewer are to be expected, intervals that follow
// from the number seen are too narrow: of three, 84 of 100 hold the truth.
const leastEvents = 10

// shareInterval returns the half-width of the 95 % interval of the share that value i of t has of that of all, in
// percent of the whole. All is t and the rest, which vary independently: with the share s, its standard deviation is the
// root of (1-s)² variance(t) + s² variance(rest), over all. Of N events of equal weight that is the binomial one, the root
// of s(1-s)/N.
func (t tally) shareInterval(i int, all tally) float64 {
	if all.values[i] == 0 {
		return 0
	}
	if t.variance > 0 && t.events < leastEvents {
		return math.Inf(1)
	}
	s := t.values[i] / all.values[i]
	variance := (1-s)*(1-s)*t.variance + s*s*max(all.variance-t.variance, 0)
	return 100 * normal95 * math.Sqrt(variance) / all.values[i]
}

// An eventPart is what tells the events of one method apart.
type eventPart struct {
	what, place, class, field string
	offset                    int64
	atOffset                  bool // the offset is known
}

// partOf reads the labels of a sample. Of allocations the kind is no part, as all are told in one way.
func partOf(kind profile.EventKind, sample *pprof.Sample) eventPart {
	part := eventPart{class: label(sample, labelClass)}
	if kind == profile.Allocations {
		part.place = label(sample, labelGeneration)
		return part
	}
	part.what, part.place, part.field = label(sample, labelKind), label(sample, labelPlace), label(sample, labelField)
	if offsets := sample.NumLabel[labelOffset]; len(offsets) > 0 {
		part.offset, part.atOffset = offsets[0], true
	}
	return part
}

// eventGroups are events by something.
type eventGroups[K comparable] struct {
	list  []*eventGroup[K] // in the order of the file
	index map[K]*eventGroup[K]
}

type eventGroup[K comparable] struct {
	key K
	tally
	parts eventGroups[eventPart]
}

// of returns the group of a key.
func (g *eventGroups[K]) of(key K) *eventGroup[K] {
	group := g.index[key]
	if group == nil {
		if g.index == nil {
			g.index = make(map[K]*eventGroup[K])
		}
		group = &eventGroup[K]{key: key}
		g.index[key] = group
		g.list = append(g.list, group)
	}
	return group
}

// sorted returns the groups by some values, the largest first one first; equals stay in the order of the file.
func (g *eventGroups[K]) sorted(values ...int) []*eventGroup[K] {
	return slices.SortedStableFunc(slices.Values(g.list), func(a, b *eventGroup[K]) int {
		for _, i := range values {
			if c := cmp.Compare(b.values[i], a.values[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(b.events, a.events)
	})
}
