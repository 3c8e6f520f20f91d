package audit

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// LeastWindows is how many windows a side needs if it is one run.
const LeastWindows = 20

// A Verdict says how B compares with A.
type Verdict uint8

const (
	Undecided Verdict = iota
	Less              // B costs less per unit, by more than the minimum effect
	More              // B costs more, by more than that
	Same              // if they differ, then by less than that
)

// String is the verdict, for tests and tables.
func (v Verdict) String() string { return [...]string{"undecided", "less", "more", "same"}[v] }

// Reason says why a difference is undecided.
type Reason uint8

const (
	None         Reason = iota
	Wide                // the interval is too wide
	TooFew              // there are not enough windows or runs for an interval
	Multiplicity        // alone it would be decided; among so many keys it may be chance
	Ranks               // the rank test does not confirm it: a few windows make the difference
	Short               // in a contest: the timings are shorter than the cost of taking them
)

// Options say how sure a verdict has to be. The zero value stands for the defaults.
type Options struct {
	Alpha float64 // probability of a false verdict, and of an interval without the truth; 0 stands for 0.01
	Least float64 // minimum effect, as a part of A; 0 stands for 0.01
	// Windows is how many windows a side needs if it is one run; 0 stands for LeastWindows. Fewer
	// are for a larger minimum effect: TestFewWindows has how often verdicts are false then.
	Windows int
	// Looks says that the comparison is repeated while the recordings grow, until there is a
	// verdict. Intervals are then always valid, and wider.
	Looks bool
}

func (o *Options) defaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Alpha == 0 {
		d.Alpha = 0.01
	}
	if d.Least == 0 {
		d.Least = 0.01
	}
	if d.Windows == 0 {
		d.Windows = LeastWindows
	}
	return d
}

// An Estimate is a cost per unit.
type Estimate struct {
	PerUnit float64
	Within  float64 // half of its interval; NaN if that is not known
}

// A Difference is how the cost of one thing per unit of work differs between A and B.
type Difference struct {
	A, B Estimate
	// Percent is B against A, from Low to High with the confidence that was asked for. All are +Inf
	// if A had none, the last two are NaN if no interval can be given.
	Percent, Low, High float64
	// Change is what B costs more, per unit, and Within half of the interval of that.
	Change, Within float64
	P              float64 // probability that there is no difference beyond the minimum effect; NaN if unknown
	Verdict        Verdict
	Reason         Reason // reason for being undecided
	// Longer is how many times as long both sides have to be recorded for a verdict, if the
	// difference is as estimated. Of a key, it includes what the number of keys asks for. It is
	// +Inf where that is beyond a thousand, and NaN if unknown.
	Longer float64

	df float64 // degrees of freedom of P
}

// A Result is the comparison of two sides.
type Result struct {
	Whole   Difference
	Keys    []Difference // in the order of the keys
	Runs    [2]int       // with work in at least one window
	Windows [2]int
	Alpha   float64
	// ByRun says that both sides have several runs, which were resampled. If not, the intervals are
	// of the windows of these runs, and do not contain what differs from one run to the next.
	ByRun bool
}

// Compare compares two sides as a whole and by keys. The keys must have been chosen without looking
// at their differences. Verdicts on keys are false in at most a part Alpha of all verdicts, on
// average (Benjamini and Hochberg); the verdict on the whole is one test of its own. Nil options
// are the zero value.
func Compare[K comparable](a, b Side[K], keys []K, opts *Options) *Result {
	o := opts.defaults()
	plans := [2]*plan{newPlan(a, o.Windows), newPlan(b, o.Windows)}
	c := &comparison{options: o, plans: plans, several: plans[0].runs() > 1 && plans[1].runs() > 1}
	wholeA, eachA := seriesOf(a, keys)
	wholeB, eachB := seriesOf(b, keys)
	r := &Result{Alpha: o.Alpha, ByRun: c.several, Keys: make([]Difference, len(keys))}
	for side, p := range plans {
		r.Runs[side], r.Windows[side] = p.runs(), p.windows()
	}
	var whole [2]int
	r.Whole, whole = c.compare(&wholeA, &wholeB)
	c.check(&r.Whole, &wholeA, &wholeB, whole)
	blocks := make([][2]int, len(keys))
	for i := range keys {
		r.Keys[i], blocks[i] = c.compare(&eachA[i], &eachB[i])
	}
	control(r.Keys, o.Alpha)
	for i := range keys {
		c.check(&r.Keys[i], &eachA[i], &eachB[i], blocks[i])
	}
	return r
}

type comparison struct {
	options Options
	plans   [2]*plan
	several bool // runs on both sides
}

// maxRelative is how large a standard error may be for the logarithm of a ratio to be about normal.
const maxRelative = 0.25

// compare makes the difference of one key, and returns how many windows of each side were drawn
// together. The verdict is what it would be if there were no other key.
func (c *comparison) compare(a, b *series) (d Difference, blocks [2]int) {
	perSample := 0.0
	if n := a.all.Samples + b.all.Samples; n > 0 {
		perSample = (a.all.Amount + b.all.Amount) / n
	}
	ra, rb := c.plans[0].estimate(a, c.several, perSample), c.plans[1].estimate(b, c.several, perSample)
	blocks = [2]int{ra.block, rb.block}
	d = Difference{
		A: Estimate{ra.value, c.half(ra.se, ra.df)}, B: Estimate{rb.value, c.half(rb.se, rb.df)},
		Percent: 100 * (rb.value/ra.value - 1), Change: rb.value - ra.value,
	}
	if ra.value == 0 && rb.value == 0 {
		d.Percent = 0
	}
	d.Low, d.High, d.Within, d.P, d.Longer = math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()
	va, vb := ra.se*ra.se, rb.se*rb.se
	if math.IsNaN(va+vb) || ra.value == 0 && rb.value == 0 {
		d.Reason = TooFew
		return d, blocks
	}
	d.Within = c.half(math.Sqrt(va+vb), pooled(va, ra.df, vb, rb.df))

	// The difference x, its standard error and the effect that does not count, in logarithms if
	// these are about normal.
	x, least := d.Change, c.options.Least*ra.value
	logs := min(ra.value, rb.value) > 0 && ra.se <= maxRelative*ra.value && rb.se <= maxRelative*rb.value
	if logs {
		x, least = math.Log(rb.value/ra.value), math.Log1p(c.options.Least)
		va, vb = va/(ra.value*ra.value), vb/(rb.value*rb.value)
	}
	se, df := math.Sqrt(va+vb), pooled(va, ra.df, vb, rb.df)
	d.df = df
	half := c.half(se, df)
	switch {
	case logs:
		d.Low, d.High = 100*math.Expm1(x-half), 100*math.Expm1(x+half)
	case ra.value > 0:
		d.Low, d.High = 100*max((x-half)/ra.value, -1), 100*(x+half)/ra.value
	}
	beyond := math.Abs(x) - least
	d.P = 1
	if beyond > 0 {
		// How far the interval would have to be stretched until it touches the effects that do not
		// count.
		d.P = tails(beyond/se*c.unstretch(df), df)
	}
	switch {
	case beyond > half && x > 0:
		d.Verdict = More
	case beyond > half:
		d.Verdict = Less
	case math.Abs(x)+half < least:
		d.Verdict = Same
	default:
		d.Reason = Wide
	}
	d.Longer = 1
	if d.Verdict == Undecided {
		d.Longer = longer(half, math.Abs(beyond))
	}
	return d, blocks
}

// longer is how many times as long to record until half of an interval is gap, as it shrinks with
// the root of the time.
func longer(half, gap float64) float64 {
	if times := (half / gap) * (half / gap); times < 1000 {
		return times
	}
	return math.Inf(1)
}

// half is half of the interval of something with that standard error.
func (c *comparison) half(se, df float64) float64 {
	if math.IsNaN(se) {
		return se
	}
	return se * quantile(c.options.Alpha, df) / c.unstretch(df)
}

// unstretch is the inverse of how much wider always-valid intervals are: 1 if there is one look.
func (c *comparison) unstretch(df float64) float64 {
	if !c.options.Looks {
		return 1
	}
	first := c.options.Windows
	if c.several {
		first = 2
	}
	return normalQuantile(c.options.Alpha) / AlwaysValid(c.options.Alpha, int(df/2)+1, first)
}

// pooled are the degrees of freedom of a sum of two variances (Welch and Satterthwaite).
func pooled(va, dfA, vb, dfB float64) float64 {
	if va+vb == 0 {
		return dfA + dfB
	}
	return (va + vb) * (va + vb) / (va*va/dfA + vb*vb/dfB)
}

// control takes back the verdicts that among so many may be chance. What is the same stays so: that
// is no finding.
func control(keys []Difference, alpha float64) {
	var order []int
	for i := range keys {
		if !math.IsNaN(keys[i].P) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(keys[i].P, keys[j].P) })
	found := 0
	for rank, i := range order {
		if keys[i].P <= alpha*float64(rank+1)/float64(len(order)) {
			found = rank + 1
		}
	}
	for _, i := range order[found:] {
		d := &keys[i]
		if d.Verdict == More || d.Verdict == Less {
			d.Verdict, d.Reason = Undecided, Multiplicity
		}
		if wanted := alpha * float64(found+1) / float64(len(order)); d.Verdict == Undecided && d.P < 1 &&
			wanted < alpha {
			d.Longer = longer(quantile(wanted, d.df), quantile(d.P, d.df))
		}
	}
}

// check takes a verdict back that the Mann–Whitney U test does not confirm. The test is left out
// where there is too little for it to confirm anything.
func (c *comparison) check(d *Difference, a, b *series, blocks [2]int) {
	if d.Verdict != More && d.Verdict != Less {
		return
	}
	alpha := c.options.Alpha
	thresholds := benchmath.Thresholds{CompareAlpha: alpha}
	va, vb := c.plans[0].perUnit(a, blocks[0]), c.plans[1].perUnit(b, blocks[1])
	if leastP(len(va), len(vb)) > alpha {
		return
	}
	test := benchmath.AssumeNothing.Compare(benchmath.NewSample(va, &thresholds), benchmath.NewSample(vb, &thresholds))
	if test.P > alpha {
		d.Verdict, d.Reason, d.Longer = Undecided, Ranks, longer(normalQuantile(alpha), normalQuantile(test.P))
	}
}

// leastP is the smallest p-value that the U test of samples of these sizes can have: all of one
// before all of the other.
func leastP(m, n int) float64 {
	p := 2.0
	for i := 1; i <= m; i++ {
		p *= float64(i) / float64(n+i)
	}
	return p
}
