package audit

import (
	"math"
	"slices"
)

// A Contest compares versions of one piece of code by timings of it, while these arrive (Lau,
// Arnold, Hind and Calder, PACT 2007, sections 2 and 6.3). Versions are numbered by the caller,
// from 0.
//
//	contest := audit.NewContest(nil)
//	contest.Add(0, 1512, 1) // version 0 took 1,512 ns for one invocation
//	if d := contest.Look(0, 1, false); d.Verdict == audit.More { ... }
//
// It departs from the paper in four ways. Intervals are always valid, so that looking again and
// again makes no verdict false. A merged timing T of N iterations weighs as N timings of T/N
// (section 5.4) in the mean, but is one observation: its N parts are not independent. The variance
// is that of up to 512 batches of timings that followed each other, of all versions together, and
// of groups of batches: neighbouring timings depend on each other, and what slows all versions down
// at the same time does not count as a difference. And what is over ten times as long as nine
// tenths of the timings counts as ten times as long: the program was interrupted.
type Contest struct {
	opt     ContestOptions
	held    [][]observation // observations of versions that have few timings yet
	totals  []ContestTotal
	limit   float64 // ns of a run; 0: none yet
	batches []batch
	fill    int // timings in the last batch
	size    int // timings of a full one
}

// ContestOptions say how sure a verdict has to be. The zero value stands for the defaults.
type ContestOptions struct {
	Confidence float64 // confidence of verdicts and intervals; 0 stands for 0.99
	Least      float64 // differences below this part of A do not matter; 0 stands for 0.01
	// Fixed uses the threshold of a single look at each look, as the paper does. Only tables of
	// what comes of that need it.
	Fixed bool
}

// A ContestTotal is what a contest has of one version.
type ContestTotal struct {
	Timings uint64
	Runs    float64 // invocations or iterations
	Time    float64 // ns, of all
	Cut     float64 // ns, what interruptions have been cut by
	Longest float64 // ns, of one run
}

type observation struct{ time, runs float64 }

// A batch has, by version, timings that followed each other.
type batch []observation

const (
	maxBatches = 512
	// EnoughTimings is how many timings of a version there must be before any of them counts,
	// unless no more follow: they say what an interruption is.
	EnoughTimings = 200
	// contestFirst is the number of timings that always-valid intervals are narrowest for: the
	// first look of the paper.
	contestFirst = 100
	// leastTimings of each version, and leastPieces of both, are needed for an interval.
	leastTimings = 20
	leastPieces  = 20
	// maxVersions is how many versions a contest has.
	maxVersions = 64
)

// NewContest returns a contest without timings. Nil options are the zero value.
func NewContest(opt *ContestOptions) *Contest {
	c := &Contest{size: 1}
	if opt != nil {
		c.opt = *opt
	}
	if c.opt.Confidence == 0 {
		c.opt.Confidence = 0.99
	}
	if c.opt.Least == 0 {
		c.opt.Least = 0.01
	}
	return c
}

// Confidence changes the confidence of later looks.
func (c *Contest) Confidence(confidence float64) { c.opt.Confidence = confidence }

// Add adds a timing of a version, which covers that many runs. A version above 63, and a timing of
// no run, is ignored.
func (c *Contest) Add(version int, ns float64, runs uint32) {
	if version < 0 || version >= maxVersions || runs == 0 {
		return
	}
	for len(c.totals) <= version {
		c.totals, c.held = append(c.totals, ContestTotal{}), append(c.held, nil)
	}
	o := observation{ns, float64(runs)}
	if c.totals[version].Timings >= EnoughTimings {
		c.count(version, o)
		return
	}
	if c.held[version] = append(c.held[version], o); len(c.held[version]) < EnoughTimings {
		return
	}
	per := make([]float64, EnoughTimings)
	for i, o := range c.held[version] {
		per[i] = o.time / o.runs
	}
	slices.Sort(per)
	// The most of all versions: each is cut by the same rule.
	c.limit = max(c.limit, 10*per[EnoughTimings*9/10])
	c.release(version)
}

// release counts what was held.
func (c *Contest) release(version int) {
	for _, o := range c.held[version] {
		c.count(version, o)
	}
	c.held[version] = nil
}

func (c *Contest) count(version int, o observation) {
	t := &c.totals[version]
	t.Timings++
	t.Runs += o.runs
	t.Time += o.time
	t.Longest = max(t.Longest, o.time/o.runs)
	if most := c.limit * o.runs; c.limit > 0 && o.time > most {
		t.Cut += o.time - most
		o.time = most
	}
	if len(c.batches) == 0 || c.fill == c.size {
		if len(c.batches) == maxBatches {
			c.merge()
		}
		c.batches, c.fill = append(c.batches, nil), 0
	}
	last := &c.batches[len(c.batches)-1]
	for len(*last) <= version {
		*last = append(*last, observation{})
	}
	(*last)[version].time += o.time
	(*last)[version].runs += o.runs
	c.fill++
}

// merge makes one batch of two.
func (c *Contest) merge() {
	for i := range maxBatches / 2 {
		a, b := c.batches[2*i], c.batches[2*i+1]
		if len(a) < len(b) {
			a, b = b, a
		}
		for version, o := range b {
			a[version].time += o.time
			a[version].runs += o.runs
		}
		c.batches[i] = a
	}
	c.batches = c.batches[:maxBatches/2]
	c.size *= 2
}

// End says that no timings will follow: from then on, versions with fewer than EnoughTimings count
// as well.
func (c *Contest) End() {
	for version := range c.held {
		c.release(version)
	}
}

// Totals are those of all versions, without timings that are held.
func (c *Contest) Totals() []ContestTotal { return slices.Clone(c.totals) }

// Look compares version b with version a, in ns per run. The verdict is More or Less if the
// interval does not contain zero, and Same if all of it is within what does not matter. last says
// that no timings will follow: versions with less than EnoughTimings count as well. All intervals
// of one contest, at any number of looks, have the confidence of its options; P is not known.
func (c *Contest) Look(a, b int, last bool) Difference {
	d := Difference{Reason: TooFew}
	d.Percent, d.Low, d.High, d.Within, d.P, d.Longer = math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN(),
		math.NaN()
	d.A.Within, d.B.Within = math.NaN(), math.NaN()
	if a == b || min(a, b) < 0 || max(a, b) >= len(c.totals) {
		return d
	}
	if last {
		c.End()
	}
	sumA, sumB := c.sum(a), c.sum(b)
	if sumA.runs == 0 || sumB.runs == 0 {
		return d
	}
	d.A.PerUnit, d.B.PerUnit = sumA.time/sumA.runs, sumB.time/sumB.runs
	n := min(c.totals[a].Timings, c.totals[b].Timings)
	d.Change, d.Percent = d.B.PerUnit-d.A.PerUnit, 100*(d.B.PerUnit/d.A.PerUnit-1)
	if d.A.PerUnit <= 0 || d.B.PerUnit <= 0 {
		d.Reason, d.Percent = Short, math.NaN()
		return d
	}
	// What each batch adds to the relative deviation of each mean, and of their ratio.
	var ofA, ofB, ofRatio []float64
	for _, piece := range c.batches {
		if piece.at(a).runs+piece.at(b).runs > 0 {
			ea, eb := piece.deviation(a, d.A.PerUnit, sumA), piece.deviation(b, d.B.PerUnit, sumB)
			ofA, ofB, ofRatio = append(ofA, ea), append(ofB, eb), append(ofRatio, eb-ea)
		}
	}
	if n < leastTimings || len(ofRatio) < leastPieces {
		return d
	}
	rounding := func(version int, mean, runs float64) float64 { // variance from rounding times to 1 ns
		return float64(c.totals[version].Timings) / 12 / (mean * runs * mean * runs)
	}
	roundA, roundB := rounding(a, d.A.PerUnit, sumA.runs), rounding(b, d.B.PerUnit, sumB.runs)
	d.A.Within = d.A.PerUnit * c.half(n, ofA, roundA)
	d.B.Within = d.B.PerUnit * c.half(n, ofB, roundB)
	half := c.half(n, ofRatio, roundA+roundB)
	x := math.Log(d.B.PerUnit / d.A.PerUnit)
	d.Low, d.High, d.Within = 100*math.Expm1(x-half), 100*math.Expm1(x+half), half*d.A.PerUnit
	least := 100 * c.opt.Least
	d.Reason, d.Longer = None, 1
	switch {
	case d.Low > -least && d.High < least:
		d.Verdict = Same
	case d.Low > 0:
		d.Verdict = More
	case d.High < 0:
		d.Verdict = Less
	default:
		// Decided once half of the interval is as wide as the difference, or leaves room for what
		// does not matter.
		d.Reason = Wide
		d.Longer = longer(half, max(math.Abs(x), math.Log1p(c.opt.Least)-math.Abs(x)))
	}
	return d
}

// half is half of the interval of a sum of deviations, which followed each other, and of rounding.
// What lasts longer than a batch, such as a neighbour on the same core that is busy for a while,
// makes neighbouring deviations alike: so they are also added up in groups of two, four and so on,
// as long as there are enough groups, and the widest interval holds.
func (c *Contest) half(timings uint64, deviations []float64, rounding float64) (half float64) {
	for group := 1; len(deviations)/group >= leastPieces; group *= 2 {
		pieces, variance := 0, 0.0
		for part := range slices.Chunk(deviations, group) {
			sum := 0.0
			for _, d := range part {
				sum += d
			}
			variance += sum * sum
			pieces++
		}
		correct := float64(pieces) / float64(pieces-1)
		half = max(half, c.threshold(timings, pieces)*math.Sqrt(variance*correct+rounding))
	}
	return half
}

// threshold is how many standard errors the interval extends to both sides.
func (c *Contest) threshold(timings uint64, pieces int) float64 {
	alpha := 1 - c.opt.Confidence
	if c.opt.Fixed {
		return normalQuantile(alpha)
	}
	n := int(min(timings, 1<<40))
	return AlwaysValid(alpha, n, contestFirst) * quantile(alpha, float64(pieces-1)) / normalQuantile(alpha)
}

func (c *Contest) sum(version int) (sum observation) {
	for _, b := range c.batches {
		o := b.at(version)
		sum.time += o.time
		sum.runs += o.runs
	}
	return sum
}

// at is what the batch has of a version.
func (b batch) at(version int) observation {
	if version >= len(b) {
		return observation{}
	}
	return b[version]
}

// deviation is what the batch adds to a version's mean beyond its share, as a part of the mean.
func (b batch) deviation(version int, mean float64, sum observation) float64 {
	o := b.at(version)
	return (o.time - mean*o.runs) / sum.time
}

// Scores are the paper's metrics of a set of timings (section 6.1). The zero value is that of no
// timings.
type Scores struct {
	timings       float64
	perturb       float64
	capped        float64 // perturb, where no timing counts for more than mostPerturb
	runs          float64
	mean, squares float64 // mean of the runs, and the sum of squared deviations from it
}

// minTiming is the smallest timing that the authors' machine could observe, in cycles: the unit of
// the perturb score.
const minTiming = 88

// Add adds a timing of that many runs, without the time that timing nothing takes, which is empty.
// Both are ns. A merged timing counts as that many equal ones (section 5.4).
func (s *Scores) Add(ns, empty float64, runs uint32) {
	if runs == 0 {
		return
	}
	s.timings++
	if empty > 0 {
		// In units in which timing nothing takes what it took the authors: 1 is the score of a
		// timing twice as long as that.
		score := 100 / (max(ns, 0)/empty*minTiming + 0.1)
		s.perturb += score
		s.capped += min(score, mostPerturb)
	}
	n := float64(runs)
	s.runs += n
	delta := ns/n - s.mean
	s.mean += delta * n / s.runs
	s.squares += n * delta * (ns/n - s.mean)
}

// mostPerturb is the score of a timing of a tenth of what timing nothing takes.
const mostPerturb = 10

// TooShort is Perturb, but with scores of single timings up to 10: a few that were no longer than
// timing nothing, which are outliers of the cost and have a score of 1000 each, say nothing about
// the others.
func (s *Scores) TooShort() float64 {
	if s.timings == 0 {
		return 0
	}
	return s.capped / s.timings
}

// Perturb is the perturb score, from 0 to 1000: how close timings are to those of nothing. One of 1
// or lower is acceptable.
func (s *Scores) Perturb() float64 {
	if s.timings == 0 {
		return 0
	}
	return s.perturb / s.timings
}

// Runs is how many runs there were timings of.
func (s *Scores) Runs() float64 { return s.runs }

// Converge is the converge score: the number of timings by their variance, in 1/ns². Twice the
// score takes half the time to a verdict. It is +Inf if all timings are equal, and 0 if there are
// none.
func (s *Scores) Converge() float64 {
	if s.runs < 2 {
		return 0
	}
	return s.runs / (s.squares / (s.runs - 1))
}
