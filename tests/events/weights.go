package events

import "math"

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
