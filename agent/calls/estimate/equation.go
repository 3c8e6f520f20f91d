package estimate

import "math"

// An equation says that x[to] - x[from] is about value; unknowns are logarithms of calls a second.
type equation struct {
	to, from CodeID // from is VM for x[to] alone
	value    float64
	// The error is from Student's t distribution: variance is that of its middle, freedom says how rare outliers are.
	variance float64
	freedom  float64
	bound    bound
	evidence Evidence

	weight float64
}

// A bound makes an equation hold if the unknown is beyond its value.
type bound int8

const (
	about   bound = iota
	atMost        // value
	atLeast       // value
)

// error is by how much x violates the equation.
func (e *equation) error(x []float64) float64 {
	r := x[e.to] - e.value
	if e.from != VM {
		r -= x[e.from]
	}
	switch {
	case e.bound == atMost && r < 0, e.bound == atLeast && r > 0:
		return 0
	}
	return r
}

// reweight sets the weight that makes least squares stand for the t distribution near x (the usual iteratively
// reweighted least squares). Softness above 1 widens the distribution.
func (e *equation) reweight(x []float64, softness float64) {
	r := e.error(x)
	if r == 0 && e.bound != about {
		e.weight = 0
		return
	}
	v := e.variance * softness
	e.weight = (e.freedom + 1) / (e.freedom + r*r/v) / v
}

// rarely and often are degrees of freedom: how often an equation is quite wrong.
const (
	often  = 2.
	rarely = 4.
	hardly = 30.
)

// near keeps an unknown's logarithm within what floating-point numbers and their products can hold.
func near(x float64) float64 { return math.Min(math.Max(x, -60), 60) }
