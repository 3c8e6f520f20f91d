package events

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Weights are how much there is of each of some things, such as bytes by class. None is negative.
type Weights map[string]float64

// ByClass adds up one of the values of the rows of each class. Objects of unknown class are a class
// of their own.
func ByClass(rows []Row, value int) Weights {
	w := Weights{}
	for _, row := range rows {
		w[row.Class] += row.Values[value]
	}
	return w
}

// ByValue adds up one of the values of the rows of each value label.
func ByValue(rows []Row, value int) Weights {
	w := Weights{}
	for _, row := range rows {
		w[row.Value] += row.Values[value]
	}
	return w
}

// Total is what all things weigh together.
func (w Weights) Total() (total float64) {
	for _, weight := range w {
		total += weight
	}
	return total
}

// Overlap says how much of both lies in the same things: the sum over all things of the smaller of
// the two shares, from 0 to 100, as package cct has it for profiles. Without any weight it is 0.
func (w Weights) Overlap(other Weights) float64 {
	total, otherTotal := w.Total(), other.Total()
	if total == 0 || otherTotal == 0 {
		return 0
	}
	var sum float64
	for thing, weight := range w {
		sum += min(weight/total, other[thing]/otherTotal)
	}
	return min(100*sum, 100) // shares are rounded
}

// Furthest is the thing whose share differs most from its share in other, and by how much, -1 to 1.
func (w Weights) Furthest(other Weights) (thing string, by float64) {
	total, otherTotal := w.Total(), other.Total()
	if total == 0 || otherTotal == 0 {
		return "", 0
	}
	for _, things := range []Weights{w, other} {
		for name := range things {
			d := w[name]/total - other[name]/otherTotal
			if math.Abs(d) > math.Abs(by) || math.Abs(d) == math.Abs(by) && name < thing {
				thing, by = name, d
			}
		}
	}
	return thing, by
}

// Alike is the overlap that two samples of one distribution would have, as many as there are on
// each side: on average, and its standard deviation. If both sides are of one distribution, each split of all samples together
// into two parts of these sizes is as likely as theirs. So nothing is assumed of keys that have no
// sample. Draws from what the samples say together would have too few keys, and a higher
// overlap.
func Alike(a, b Weights) (mean, deviation float64) {
	var samples []string
	for _, w := range []Weights{a, b} {
		for _, key := range slices.Sorted(maps.Keys(w)) {
			for range int(w[key]) {
				samples = append(samples, key)
			}
		}
	}
	count := func(samples []string) Weights {
		w := Weights{}
		for _, key := range samples {
			w[key]++
		}
		return w
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const splits = 50
	first, squares := int(a.Total()), 0.0
	for range splits {
		rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		overlap := count(samples[:first]).Overlap(count(samples[first:]))
		mean += overlap / splits
		squares += overlap * overlap / splits
	}
	return mean, math.Sqrt(max(squares-mean*mean, 0))
}
