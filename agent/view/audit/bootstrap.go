package audit

import (
	"math"
	"math/rand/v2"
)

const (
	replicates = 1000 // the standard error of a standard error is then 2 %
	seed       = 0x6c61752d32303039
	// leastBlocks is how many blocks there are at least, so that their spread means something.
	leastBlocks = 5
	// fewSamples is the number of samples below which the spread of windows is not trusted alone:
	// all may be in one window, or none anywhere.
	fewSamples = 50
)

// resamples are how often each window is drawn in each replicate.
type resamples struct {
	drawn [][]float64 // by window, then replicate
	units []float64   // units of each replicate
	count int         // things that are drawn in a replicate: runs, or blocks
}

// resample returns the resamples of windows in circular blocks of that length, or of whole runs if
// it is 0. They are made once, and the same for each key.
func (p *plan) resample(block int) *resamples {
	if r := p.weights[block]; r != nil {
		return r
	}
	n := p.windows()
	r := &resamples{drawn: make([][]float64, n), units: make([]float64, replicates)}
	backing := make([]float64, n*replicates)
	for i := range r.drawn {
		r.drawn[i] = backing[i*replicates : (i+1)*replicates]
	}
	random := rand.New(rand.NewPCG(seed, uint64(n)<<32|uint64(block)))
	r.count = p.runs()
	if block > 0 {
		r.count = n / block
	}
	for j := range replicates {
		draw := func(i int) {
			r.drawn[i][j]++
			r.units[j] += p.units[i]
		}
		if block == 0 {
			for range p.runs() {
				run := random.IntN(p.runs())
				for i := p.start[run]; i < p.start[run+1]; i++ {
					draw(i)
				}
			}
			continue
		}
		for left := n; left > 0; left -= block {
			first := random.IntN(n)
			for i := range min(block, left) {
				draw((first + i) % n)
			}
		}
	}
	p.weights[block] = r
	return r
}

// A ratio is the cost of a key per unit on one side.
type ratio struct {
	value float64
	se    float64 // standard error; NaN if there are too few windows for one
	df    float64 // degrees of freedom of the standard error
	block int     // windows that were drawn together; 0: whole runs
}

// estimate returns the ratio of a key. perSample is the amount that one of its samples stands for.
func (p *plan) estimate(s *series, several bool, perSample float64) ratio {
	if p.all == 0 {
		return ratio{se: math.NaN()}
	}
	r := ratio{value: s.all.Amount / p.all}
	lack := 1.0
	if !several {
		if p.windows() < p.least {
			r.se = math.NaN()
			return r
		}
		rho := p.memory(s, r.value)
		r.block = blockLength(rho, p.windows())
		lack = blockLack(rho, r.block)
	}
	set := p.resample(r.block)
	sums := make([]float64, replicates)
	for _, c := range s.cells {
		for j, times := range set.drawn[c.window] {
			sums[j] += times * c.amount
		}
	}
	mean := 0.0
	for j := range sums {
		sums[j] /= set.units[j]
		mean += sums[j] / replicates
	}
	variance := 0.0
	for _, v := range sums {
		variance += (v - mean) * (v - mean) / (replicates - 1)
	}
	k := float64(set.count)
	variance *= k / (k - 1) / lack // what is resampled varies by that much less than what it is drawn from
	if n := s.all.Samples; n < fewSamples && perSample > 0 {
		variance = max(variance, (n+1)*perSample*perSample/(p.all*p.all))
	}
	variance += r.value * r.value * p.unitsError * p.unitsError
	r.se, r.df = math.Sqrt(variance), k-1
	return r
}

// memory is the correlation of a window's deviation from the mean with that of the window before: 0
// unless it is more than chance alone would make of independent windows two times in three.
func (p *plan) memory(s *series, value float64) float64 {
	n := p.windows()
	rest := make([]float64, n) // off the mean
	for i, u := range p.units {
		rest[i] = -value * u
	}
	for _, c := range s.cells {
		rest[c.window] += c.amount
	}
	var square, product float64
	for i, e := range rest {
		square += e * e
		if i > 0 {
			product += e * rest[i-1]
		}
	}
	if square == 0 {
		return 0
	}
	rho := product / square
	rho += (1 + 3*rho) / float64(n) // the estimate is too small by about that much
	if rho*math.Sqrt(float64(n)) <= 1 {
		return 0
	}
	return min(rho, 0.9)
}

// blockLength chooses how many windows to draw together: the length that is best for a first-order
// autoregression (Politis and White 2004).
func blockLength(rho float64, n int) int {
	length := math.Cbrt(1.5*float64(n)) * math.Pow(2*rho/(1-rho*rho), 2.0/3)
	return min(max(int(math.Round(length)), 1), n/leastBlocks)
}

// blockLack is the part of the variance that blocks of that length show: what windows of two blocks
// have in common is lost (Künsch 1989, theorem 3.1, for the autoregression).
func blockLack(rho float64, block int) float64 {
	const least = 0.4 // it is an approximation, for a small loss
	return max(1-2*rho/((1-rho*rho)*float64(block)), least)
}

// perUnit are the costs per unit of each run, or else of each block of windows: what the rank test
// compares.
func (p *plan) perUnit(s *series, block int) (values []float64) {
	amounts := make([]float64, p.windows())
	for _, c := range s.cells {
		amounts[c.window] = c.amount
	}
	bounds := p.start
	if block > 0 {
		bounds = nil
		for i := 0; i+block <= p.windows(); i += block {
			bounds = append(bounds, i)
		}
		bounds = append(bounds, p.windows()) // the last block has the rest
	}
	for i := range len(bounds) - 1 {
		var amount, units float64
		for w := bounds[i]; w < bounds[i+1]; w++ {
			amount += amounts[w]
			units += p.units[w]
		}
		values = append(values, amount/units)
	}
	return values
}
