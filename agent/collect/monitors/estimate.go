package monitors

import "math"

// An Observation is one window of one thread as input to Rates. Times are seconds.
type Observation struct {
	Sites  []int     // indexes, different ones
	Counts []float64 // hits of each
	Ran    float64   // CPU time of the thread during the hits; 0 if unknown
	Traps  float64   // the approximate part of it that hits took
}

const (
	// factorError is the error of the time of all traps, as a fraction of it: during calibration,
	// the caches contain other things.
	factorError = 0.15
	// trapError is the variation of traps between windows, as a fraction of their time: some
	// percent on an idle machine, and more if a hypervisor schedules other machines meanwhile.
	trapError = 0.08
	// clockError is the error of the rest of a window's time, as a fraction of it.
	clockError = 0.05
	// freedom is of the errors of times, which have Student's t distribution: a window may have
	// been interrupted for long.
	freedom = 2
	// leastWait is the minimum time between two acquisitions of a thread, in seconds: each
	// exchanges a word of memory, which takes some 20 cycles.
	leastWait = 5e-9
	// mostFactor bounds how much more, or less, traps may take than in calibration.
	mostFactor = 2
	// Rounds until nothing changes by more than this fraction; some dozens are usually enough.
	maxRounds = 300
	settled   = 1e-6
)

// A stretch is an Observation with the time of the thread's own code in it.
type stretch struct {
	*Observation
	hits  float64 // hits of all sites
	own   float64 // estimated time of the thread's own code
	error float64 // standard error of that time according to the clock
}

// Rates returns how often each of n sites is entered, per second of a thread's CPU time: the rates
// under which the observations are most likely. The hits of a window are Poisson numbers around the
// rates times the time of the thread's own code. With few traps that time is known well. With many
// it is hardly known, and the window shows only ratios, like comparisons of pairs in Bradley and
// Terry's model. The most likely times, rates and time of a trap are solved for in turn until they
// settle. A site without hits has the rate 0.
//
// The time of a trap differs from that in calibration, but is about the same in all windows: it
// follows from how the time per hit differs between windows of frequent and of rare sites.
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
			const vague = 10 // times the clock's error
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

// take sets the own time, limited to possible values.
func (s *stretch) take(own float64) { s.own = max(own, leastWait*max(s.hits, 1)) }

// sum returns how often the window's sites are entered, all together.
func (s *stretch) sum(rates []float64) (sum float64) {
	for _, i := range s.Sites {
		sum += rates[i]
	}
	return sum
}

// likely returns the most likely time for that many hits at a rate, if the clock indicates about
// this time: the positive root of hits/t - rate - (t - about)/error².
func (s *stretch) likely(rate, about, error float64) float64 {
	v := error * error
	b := rate*v - about
	root := math.Sqrt(b*b + 4*s.hits*v)
	if b > 0 && s.hits > 0 {
		return 2 * s.hits * v / (b + root) // without cancellation
	}
	return (root - b) / 2
}

// weight is the weight of a window's clock that is off by this much.
func weight(off, error float64) float64 {
	z := off / error
	return (freedom + 1) / (freedom + z*z)
}

// rescale finds the factor by which traps take longer than calibrated, and scales all times so that
// they fit the clocks best:
//
//	ran = factor * traps + scale * hits / rate
//
// by least squares, with factorError as the prior error of the factor. Times of hits at equal rates
// vary by 1/sqrt(hits). The scale must be above 0. If the clocks cannot distinguish it from 0,
// because a trap takes many times as long as the time between two of them, its expectation under
// that condition is used.
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
	const least = 0.1 // per round
	scale := min(max(positive((b2-a12*factor)/a22, math.Sqrt(a11/det)), least), 1/least)
	for i := range stretches {
		stretches[i].take(scale * stretches[i].own)
	}
	return factor
}

// positive returns the mean of a normal distribution truncated to values above 0: for large x it is
// x.
func positive(x, error float64) float64 {
	z := x / error
	const asymptotic = -20
	if z < asymptotic {
		return -error / z
	}
	density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
	return x + error*density/(math.Erfc(-z/math.Sqrt2)/2)
}

// solveRates finds the rates that fit the times best, and returns the largest relative change.
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
