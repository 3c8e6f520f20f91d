package monitors

import "math"

// An Observation is one window of one thread as Rates takes it. Times are seconds.
type Observation struct {
	Sites  []int     // indexes, different ones
	Counts []float64 // hits of each
	Ran    float64   // CPU time of the thread in which they came; 0 if it is not known
	Traps  float64   // of that, what the hits took, about
}

const (
	// factorError is how far the time of all traps may be off, as a part of it: calibration has other things in the caches.
	factorError = 0.15
	// trapError is by how much traps of one window differ from those of another, as a part of their time: some percent on an
	// idle machine, and more where a hypervisor gives the CPU to others meanwhile.
	trapError = 0.08
	// clockError is how well the rest of a window's time is known, as a part of it.
	clockError = 0.05
	// freedom of the errors of times, which are Student's t: a window may have been interrupted for long.
	freedom = 2
	// leastWait is between two enters of a thread at least, in seconds: each exchanges a word of memory, which takes some 20
	// cycles.
	leastWait = 5e-9
	// mostFactor bounds by how much traps may take more, or less, than in calibration.
	mostFactor = 2
	// Rounds until nothing changes by more than a part of it; some dozens are enough mostly.
	maxRounds = 300
	settled   = 1e-6
)

// A stretch is an Observation with the time that the thread's own code had in it.
type stretch struct {
	*Observation
	hits  float64 // of all sites
	own   float64 // that time, as estimated
	error float64 // standard error of what the clock says of it
}

// Rates returns how often each of n sites is entered, per second of a thread's CPU time: those rates under which the
// observations are most likely. The hits of a window are Poisson numbers around the rates times the time that the
// thread's own code had. That time is known well where there were few traps. Where there were many it is hardly known,
// and the window shows only ratios, as comparisons of pairs do in Bradley and Terry's model. Likely times, rates and the
// time of a trap are solved for in turn until they settle. A site without hits has the rate 0.
//
// What a trap takes is not what it took in calibration, but about the same in all windows: it follows from
// how the time per hit differs between windows of frequent and of rare sites.
func Rates(n int, observations []Observation) []float64 {
	stretches := make([]stretch, 0, len(observations))
	for i := range observations {
		if s := newStretch(&observations[i]); s.hits > 0 || s.Ran > 0 {
			stretches = append(stretches, s)
		}
	}
	rates := make([]float64, n)
	solveRates(rates, stretches)
	for range maxRounds { // ratios first
		for i := range stretches {
			s := &stretches[i]
			const vague = 10 // times what the clock says
			s.take(s.likely(s.sum(rates), s.own, vague*max(s.Ran, s.own)))
		}
		if solveRates(rates, stretches) < settled {
			break
		}
	}
	factor := 1.
	for range maxRounds {
		factor = rescale(rates, stretches, factor)
		solveRates(rates, stretches)
		for i := range stretches {
			s := &stretches[i]
			if s.Ran > 0 {
				about := s.Ran - factor*s.Traps
				s.take(s.likely(s.sum(rates), about, s.error/math.Sqrt(weight(about-s.own, s.error))))
			} else if rate := s.sum(rates); rate > 0 {
				s.take(s.hits / rate)
			}
		}
		if solveRates(rates, stretches) < settled {
			break
		}
	}
	return rates
}

func newStretch(o *Observation) stretch {
	s := stretch{Observation: o}
	for _, n := range o.Counts {
		s.hits += n
	}
	left := max(o.Ran-o.Traps, 0)
	s.error = math.Hypot(clockError*left, trapError*o.Traps) + 1e-9 // a clock's resolution
	s.take(max(left, s.error))
	return s
}

// take takes a time over, if it is possible.
func (s *stretch) take(own float64) { s.own = max(own, leastWait*max(s.hits, 1)) }

// sum is how often the window's sites are entered, all together.
func (s *stretch) sum(rates []float64) (sum float64) {
	for _, i := range s.Sites {
		sum += rates[i]
	}
	return sum
}

// likely is the most likely time for so many hits at a rate, if the clock says about so long: the positive root of
// hits/t - rate - (t - about)/error².
func (s *stretch) likely(rate, about, error float64) float64 {
	v := error * error
	b := rate*v - about
	root := math.Sqrt(b*b + 4*s.hits*v)
	if b > 0 && s.hits > 0 {
		return 2 * s.hits * v / (b + root) // without cancellation
	}
	return (root - b) / 2
}

// weight is what a window's clock counts that is off by so much.
func weight(off, error float64) float64 {
	z := off / error
	return (freedom + 1) / (freedom + z*z)
}

// rescale finds by which factor traps take longer than they were said to, and makes all times longer or shorter so that
// they fit the clocks best:
//
//	ran = factor * traps + scale * hits / rate
//
// by least squares, with factorError as what is known of the factor before. Hits of equal rates come in times that vary
// by 1/sqrt(hits). The scale is above 0: where the clocks cannot distinguish it from 0, because a trap takes many times as long as what
// is between two of them, it is what is to be expected of such a number, and not 0.
func rescale(rates []float64, stretches []stretch, factor float64) float64 {
	prior := 1 / (factorError * factorError)
	a11, a12, a22, b1, b2 := prior, 0., 0., prior, 0.
	for i := range stretches {
		s := &stretches[i]
		rate := s.sum(rates)
		if s.Ran == 0 || s.hits == 0 || rate == 0 {
			continue
		}
		own := s.hits / rate
		error := math.Hypot(s.error, own/math.Sqrt(s.hits))
		w := weight(s.Ran-factor*s.Traps-own, error) / (error * error)
		a11 += w * s.Traps * s.Traps
		a12 += w * s.Traps * own
		a22 += w * own * own
		b1 += w * s.Traps * s.Ran
		b2 += w * own * s.Ran
	}
	det := a11*a22 - a12*a12
	if a22 == 0 || det <= 1e-12*a11*a22 {
		return factor
	}
	factor = min(max((b1*a22-b2*a12)/det, 1./mostFactor), mostFactor)
	const least = 0.1 // a round
	scale := min(max(positive((b2-a12*factor)/a22, math.Sqrt(a11/det)), least), 1/least)
	for i := range stretches {
		stretches[i].take(scale * stretches[i].own)
	}
	return factor
}

// positive is the mean of a normal distribution of which it is known that it is above 0: for large x it is x.
func positive(x, error float64) float64 {
	z := x / error
	const asymptotic = -20
	if z < asymptotic {
		return -error / z
	}
	density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
	return x + error*density/(math.Erfc(-z/math.Sqrt2)/2)
}

// solveRates finds the rates that fit the times best, and returns by how much one changed at most, as a part of it.
func solveRates(rates []float64, stretches []stretch) (change float64) {
	hits, time := make([]float64, len(rates)), make([]float64, len(rates))
	for i := range stretches {
		s := &stretches[i]
		for k, site := range s.Sites {
			hits[site] += s.Counts[k]
			time[site] += s.own
		}
	}
	for i := range rates {
		if hits[i] == 0 {
			continue
		}
		rate := hits[i] / time[i]
		change = max(change, math.Abs(rate-rates[i])/rate)
		rates[i] = rate
	}
	return change
}
