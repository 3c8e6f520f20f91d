package estimate

import "math"

// An equation states that x[to] - x[from] is about value; unknowns are logarithms of calls a
// second.
type equation struct {
	to, from CodeID // from is VM for x[to] alone
	value    float64
	// The error has Student's t distribution: variance is that of its middle, freedom says how rare
	// outliers are.
	variance float64
	freedom  float64
	bound    bound
	evidence Evidence

	weight float64
}

// A bound limits an equation to one side: it holds if the unknown is beyond its value.
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

// reweight sets the weight that makes least squares stand for the t distribution near x (the usual
// iteratively reweighted least squares). Softness above 1 widens the distribution.
func (e *equation) reweight(x []float64, softness float64) {
	r := e.error(x)
	if r == 0 && e.bound != about {
		e.weight = 0
		return
	}
	v := e.variance * softness
	e.weight = (e.freedom + 1) / (e.freedom + r*r/v) / v
}

// rarely and often are degrees of freedom: how often an equation is far off.
const (
	often  = 2.
	rarely = 4.
	hardly = 30.
)

// near keeps an unknown's logarithm within what floating-point numbers and their products can hold.
func near(x float64) float64 { return math.Min(math.Max(x, -60), 60) }

// solve moves x to the most likely point under the equations. Each round sets the equations'
// weights and solves the normal equations by conjugate gradients, with their diagonal as
// preconditioner (Hestenes & Stiefel, 1952; Saad, Iterative Methods for Sparse Linear Systems,
// algorithm 9.1). It costs some tens of passes over the equations. Unknowns that are in no equation
// keep their value.
func solve(x []float64, equations []equation, softness float64, rounds int) {
	s := newLeastSquares(len(x))
	for range rounds {
		for i := range equations {
			equations[i].reweight(x, softness)
		}
		if s.step(x, equations) < 1e-3 {
			return
		}
	}
}

// A leastSquares is the memory of the conjugate gradients, by unknown.
type leastSquares struct {
	change, diagonal, residual, direction, image []float64

	alone []float64  // part of the diagonal from equations with one unknown
	pairs []coupling // the other equations
}

// A coupling is the weight of an equation of two unknowns.
type coupling struct {
	to, from int32
	weight   float64
}

func newLeastSquares(n int) *leastSquares {
	slab := make([]float64, 6*n)
	return &leastSquares{
		change: slab[:n], diagonal: slab[n : 2*n], residual: slab[2*n : 3*n], direction: slab[3*n : 4*n],
		image: slab[4*n : 5*n], alone: slab[5*n:],
	}
}

// step moves x to the solution for the current weights, and returns the largest change.
func (s *leastSquares) step(x []float64, equations []equation) float64 {
	const (
		iterations = 40
		tolerance  = 1e-5 // relative bound on the residual's squared norm: the next round has other weights
	)
	s.start(x, equations)
	first := s.norm()
	before := first
	for range iterations {
		norm := s.norm()
		if norm <= tolerance*first || norm < 1e-18 {
			break
		}
		for i, d := range s.diagonal {
			if d > 0 {
				s.direction[i] = s.residual[i]/d + norm/before*s.direction[i]
			}
		}
		before = norm
		curvature := s.apply()
		if !(curvature > 0) {
			break
		}
		length := norm / curvature
		for i, d := range s.direction {
			s.change[i] += length * d
			s.residual[i] -= length * s.image[i]
		}
	}
	largest := 0.
	for i, c := range s.change {
		moved := near(x[i] + c)
		largest = max(largest, math.Abs(moved-x[i]))
		x[i] = moved
	}
	return largest
}

// start computes the diagonal of the normal equations, and the residual for no change.
func (s *leastSquares) start(x []float64, equations []equation) {
	clear(s.change)
	clear(s.diagonal)
	clear(s.residual)
	clear(s.direction)
	clear(s.alone)
	s.pairs = s.pairs[:0]
	for i := range equations {
		e := &equations[i]
		if e.weight == 0 {
			continue
		}
		pull := e.weight * e.error(x)
		s.diagonal[e.to] += e.weight
		s.residual[e.to] -= pull
		if e.from == VM {
			s.alone[e.to] += e.weight
			continue
		}
		s.diagonal[e.from] += e.weight
		s.residual[e.from] += pull
		s.pairs = append(s.pairs, coupling{int32(e.to), int32(e.from), e.weight})
	}
}

// norm is the squared norm of the preconditioned residual.
func (s *leastSquares) norm() float64 {
	sum := 0.
	for i, d := range s.diagonal {
		if d > 0 {
			sum += s.residual[i] * s.residual[i] / d
		}
	}
	return sum
}

// apply multiplies the direction with the normal equations, and returns its curvature.
func (s *leastSquares) apply() float64 {
	for i, d := range s.direction {
		s.image[i] = s.alone[i] * d
	}
	for _, p := range s.pairs {
		d := p.weight * (s.direction[p.to] - s.direction[p.from])
		s.image[p.to] += d
		s.image[p.from] -= d
	}
	sum := 0.
	for i, d := range s.direction {
		sum += d * s.image[i]
	}
	return sum
}
