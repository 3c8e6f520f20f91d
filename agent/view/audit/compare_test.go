package audit_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit/audittest"
)

// One program against itself: how often the interval does not have the truth, and how often there
// is a verdict. Tolerances are three standard errors of the share of so many experiments, and half
// of alpha again for what block bootstraps of so few windows are known to lack where windows depend
// on each other.
func TestNoDifference(t *testing.T) {
	const alpha = 0.05
	for _, load := range audittest.Loads() {
		for windows, experiments := range map[int]int{20: 1000, 60: 150} {
			t.Run(fmt.Sprintf("%s, %d windows", load.Name, windows), func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, uint64(windows)))
				var missed, verdicts int
				for range experiments {
					r := audit.Compare(load.Side(random, 1, windows, 1), load.Side(random, 1, windows, 1), nil,
						&audit.Options{Alpha: alpha, Least: 1e-9})
					if !(r.Whole.Low <= 0 && 0 <= r.Whole.High) {
						missed++
					}
					if v := r.Whole.Verdict; v == audit.More || v == audit.Less {
						verdicts++
					}
				}
				share, limit := float64(missed)/float64(experiments), 1.5*alpha+
					3*math.Sqrt(alpha*(1-alpha)/float64(experiments))
				t.Logf("missed %.3f, verdicts %.3f", share, float64(verdicts)/float64(experiments))
				if share > limit {
					t.Errorf("%.3f of the intervals do not have the truth, limit %.3f", share, limit)
				}
				if share := float64(verdicts) / float64(experiments); share > alpha+
					3*math.Sqrt(alpha*(1-alpha)/float64(experiments)) {
					t.Errorf("%.3f of the verdicts are false", share)
				}
			})
		}
	}
}

// With ten windows a side, as pages compare them, a least effect of a tenth keeps false verdicts
// below alpha.
func TestFewWindows(t *testing.T) {
	const windows, experiments, alpha = 10, 400, 0.01
	for _, load := range audittest.Loads() {
		random := rand.New(rand.NewPCG(7, windows))
		verdicts, found := 0, 0
		for range experiments {
			o := &audit.Options{Alpha: alpha, Least: 0.1, Windows: windows}
			if v := audit.Compare(load.Side(random, 1, windows, 1), load.Side(random, 1, windows, 1), nil,
				o).Whole.Verdict; v == audit.More || v == audit.Less {
				verdicts++
			}
			if audit.Compare(load.Side(random, 1, windows, 1), load.Side(random, 1, windows, 1.5), nil,
				o).Whole.Verdict == audit.More {
				found++
			}
		}
		t.Logf("%s: %d of %d verdicts are false, a difference of 50 %% is found %d times", load.Name, verdicts,
			experiments, found)
		if verdicts > alpha*experiments {
			t.Errorf("%s: %d of %d verdicts are false", load.Name, verdicts, experiments)
		}
		if load.Name == "steady" && found < experiments*9/10 {
			t.Errorf("%s: a difference of 50 %% is found %d times", load.Name, found)
		}
	}
	load := audittest.Loads()[0]
	random := rand.New(rand.NewPCG(8, windows))
	if d := audit.Compare(load.Side(random, 1, 9, 1), load.Side(random, 1, windows, 2), nil,
		&audit.Options{Windows: windows}).Whole; d.Reason != audit.TooFew {
		t.Errorf("with nine windows: %v, %v", d.Verdict, d.Reason)
	}
}

// Processes of one program differ by 3 % each. With several a side the interval has that; with one
// it has not, and says so.
func TestRuns(t *testing.T) {
	const alpha, experiments = 0.05, 400
	load := audittest.Load{Samples: 500, Cluster: 1, Runs: 0.03}
	for _, test := range []struct {
		runs        int
		least, most float64 // share of intervals without the truth
	}{{1, 0.4, 1}, {3, 0, 0.08}, {6, 0, 0.08}} {
		random := rand.New(rand.NewPCG(2, uint64(test.runs)))
		missed := 0
		for range experiments {
			r := audit.Compare(load.Side(random, test.runs, 30, 1), load.Side(random, test.runs, 30, 1), nil,
				&audit.Options{Alpha: alpha})
			if !(r.Whole.Low <= 0 && 0 <= r.Whole.High) {
				missed++
			}
			if r.ByRun != (test.runs > 1) {
				t.Fatalf("%d runs: by run %v", test.runs, r.ByRun)
			}
		}
		if share := float64(missed) / experiments; share < test.least || share > test.most {
			t.Errorf("%d runs: %.3f of the intervals do not have the truth, want %v to %v", test.runs, share,
				test.least, test.most)
		}
	}
}

// What is 5 % slower is found in a minute with 500 samples a second, and what costs the same is
// not; the estimate is right on average.
func TestPower(t *testing.T) {
	const experiments = 200
	load := audittest.Loads()[0]
	random := rand.New(rand.NewPCG(3, 3))
	found, sum := 0, 0.0
	for range experiments {
		r := audit.Compare(load.Side(random, 1, 60, 1), load.Side(random, 1, 60, 1.05), nil, nil)
		sum += r.Whole.Percent
		switch r.Whole.Verdict {
		case audit.More:
			found++
		case audit.Less:
			t.Errorf("slower is faster: %+v", r.Whole)
		}
	}
	// The standard error is 0.8 %: 5 % is 2.4 of them beyond the 2.7 of the interval and the
	// minimum effect of 1 %.
	if share := float64(found) / experiments; share < 0.95 {
		t.Errorf("a difference of 5 %% is found in %.2f of the cases", share)
	}
	if mean := sum / experiments; math.Abs(mean-5) > 3*0.83/math.Sqrt(experiments) {
		t.Errorf("the mean of the estimates is %.2f %%, not 5", mean)
	}
}

// manyKeys is a side with many rare keys of the same cost, of which the first are slow times as
// expensive.
func manyKeys(random *rand.Rand, keys, windows, slower int, slow float64) audit.Side[string] {
	run := audit.Run[string]{}
	for range windows {
		w := audit.Window[string]{Units: 1, Keys: make(map[string]audit.Cost)}
		for k := range keys {
			mean := 5.0
			if k < slower {
				mean *= slow
			}
			n := float64(audittest.Poisson(random, mean))
			w.Keys[fmt.Sprint(k)] = audit.Cost{Amount: 1e6 * n, Samples: n}
			w.Total.Amount += 1e6 * n
			w.Total.Samples += n
		}
		run.Windows = append(run.Windows, w)
	}
	return audit.Side[string]{Runs: []audit.Run[string]{run}}
}

func keyNames(n int) (names []string) {
	for k := range n {
		names = append(names, fmt.Sprint(k))
	}
	return names
}

// Of many keys that do not differ, none is reported in nearly all comparisons; with some that do,
// few of the findings are false.
func TestManyKeys(t *testing.T) {
	const alpha, experiments, keys = 0.05, 60, 100
	for _, slower := range []int{0, 10} {
		random := rand.New(rand.NewPCG(4, uint64(slower)))
		var right, wrong, any int
		for range experiments {
			r := audit.Compare(manyKeys(random, keys, 60, 0, 1), manyKeys(random, keys, 60, slower, 1.6),
				keyNames(keys), &audit.Options{Alpha: alpha})
			before := wrong
			for k, d := range r.Keys {
				switch {
				case d.Verdict == audit.More && k < slower:
					right++
				case d.Verdict == audit.More || d.Verdict == audit.Less:
					wrong++
				}
			}
			if wrong > before {
				any++
			}
		}
		if slower == 0 && float64(any)/experiments > alpha+3*math.Sqrt(alpha*(1-alpha)/experiments) {
			t.Errorf("without a difference, %d of %d comparisons report one", any, experiments)
		}
		if slower > 0 && (right < 9*slower*experiments/10 || float64(wrong) > 2*alpha*float64(right+wrong)) {
			t.Errorf("%d of %d differences found, %d false ones", right, slower*experiments, wrong)
		}
	}
}

// side makes a side of windows of one unit each, of which each costs so much and has so many
// samples.
func side(amounts ...float64) audit.Side[string] {
	var run audit.Run[string]
	for _, a := range amounts {
		cost := audit.Cost{Amount: a, Samples: a}
		run.Windows = append(run.Windows, audit.Window[string]{Units: 1, Total: cost,
			Keys: map[string]audit.Cost{"k": cost}})
	}
	return audit.Side[string]{Runs: []audit.Run[string]{run}}
}

func repeat(n int, values ...float64) (all []float64) {
	for range n {
		all = append(all, values...)
	}
	return all
}

func TestVerdicts(t *testing.T) {
	outlier := repeat(20, 9900, 10100)
	outlier[7], outlier[21] = 40000, 40000
	for _, test := range []struct {
		name    string
		a, b    audit.Side[string]
		verdict audit.Verdict
		reason  audit.Reason
		percent float64
	}{
		{"more", side(repeat(20, 9900, 10100)...), side(repeat(20, 10890, 11110)...), audit.More, audit.None, 10},
		{"less", side(repeat(20, 10890, 11110)...), side(repeat(20, 9900, 10100)...), audit.Less, audit.None,
			-100.0 / 11},
		{"same", side(repeat(20, 9900, 10100)...), side(repeat(20, 9901, 10101)...), audit.Same, audit.None, 0.01},
		{"new", side(repeat(40, 0)...), side(repeat(20, 9, 11)...), audit.More, audit.None, math.Inf(1)},
		{"gone", side(repeat(20, 9, 11)...), side(repeat(40, 0)...), audit.Less, audit.None, -100},
		{"one sample is not new", side(repeat(40, 0)...), side(append(repeat(39, 0), 1)...), audit.Undecided,
			audit.Wide, math.Inf(1)},
		{"nothing", side(repeat(40, 0)...), side(repeat(40, 0)...), audit.Undecided, audit.TooFew, 0},
		{"noise", side(repeat(20, 5000, 15000)...), side(repeat(20, 5500, 15500)...), audit.Undecided, audit.Wide, 5},
		{"outliers", side(repeat(20, 9900, 10100)...), side(outlier...), audit.Undecided, audit.Wide, 14.95},
		{"too few", side(repeat(9, 9900, 10100)...), side(repeat(9, 19900, 20100)...), audit.Undecided, audit.TooFew,
			100},
		{"no windows", audit.Side[string]{}, side(repeat(30, 1)...), audit.Undecided, audit.TooFew, math.Inf(1)},
	} {
		d := audit.Compare(test.a, test.b, []string{"k"}, nil)
		if w := d.Whole; w.Verdict != test.verdict || w.Reason != test.reason ||
			!(w.Percent == test.percent || math.Abs(w.Percent-test.percent) < 0.01) {
			t.Errorf("%s: %+v, want %v of reason %v and %v %%", test.name, w, test.verdict, test.reason, test.percent)
		}
		if again := audit.Compare(test.a, test.b, []string{"k"}, nil); fmt.Sprint(again) != fmt.Sprint(d) {
			t.Errorf("%s: the second time it is %+v", test.name, again)
		}
		if fmt.Sprint(d.Keys[0]) != fmt.Sprint(d.Whole) {
			t.Errorf("%s: the only key is %+v, the whole %+v", test.name, d.Keys[0], d.Whole)
		}
	}
}

// A few windows that cost very much are no verdict, however many samples they have.
func TestRanks(t *testing.T) {
	a := repeat(100, 99, 101)
	b := repeat(100, 99, 101)
	for i := 0; i < 200; i += 14 {
		b[i] = 2000
	}
	if d := audit.Compare(side(a...), side(b...), nil, nil).Whole; d.Verdict != audit.Undecided ||
		d.Reason != audit.Ranks {
		t.Errorf("%+v", d)
	}
}

// Units that are only estimated make the interval wider: by 2.6 times 3 % here.
func TestUnitsError(t *testing.T) {
	a, b := side(repeat(20, 9990, 10010)...), side(repeat(20, 10490, 10510)...)
	exact := audit.Compare(a, b, nil, nil).Whole
	a.UnitsError = 0.03
	estimated := audit.Compare(a, b, nil, nil).Whole
	if exact.Verdict != audit.More || estimated.Verdict != audit.Undecided || estimated.High < 11 ||
		estimated.Low > -1 {
		t.Errorf("exact %+v\nestimated %+v", exact, estimated)
	}
}

// What is undecided is decided after so many times as long, more often than not.
func TestLonger(t *testing.T) {
	load := audittest.Loads()[0]
	random := rand.New(rand.NewPCG(5, 5))
	var undecided, decided int
	for range 100 {
		a, b := load.Side(random, 1, 30, 1), load.Side(random, 1, 30, 1.03)
		d := audit.Compare(a, b, nil, nil).Whole
		if d.Verdict != audit.Undecided || d.Percent < 2 { // a guess of that is far off
			continue
		}
		undecided++
		n := int(30 * min(d.Longer, 40))
		if audit.Compare(load.Side(random, 1, n, 1), load.Side(random, 1, n, 1.03), nil,
			nil).Whole.Verdict == audit.More {
			decided++
		}
	}
	if undecided < 20 || float64(decided) < 0.4*float64(undecided) {
		t.Errorf("%d of %d were decided", decided, undecided)
	}
}

// Always-valid bounds hold at every look, a fixed threshold does not.
func TestAlwaysValid(t *testing.T) {
	const alpha, experiments, looks, each = 0.05, 400, 100, 20
	random := rand.New(rand.NewPCG(6, 6))
	var fixed, valid int
	for range experiments {
		var sum float64
		var leftFixed, leftValid bool
		for n := 0; n < looks*each; {
			for range each {
				sum += random.NormFloat64()
				n++
			}
			z := math.Abs(sum) / math.Sqrt(float64(n))
			leftFixed = leftFixed || z > 1.96
			leftValid = leftValid || z > audit.AlwaysValid(alpha, n, each)
		}
		if leftFixed {
			fixed++
		}
		if leftValid {
			valid++
		}
	}
	if share := float64(valid) / experiments; share > alpha {
		t.Errorf("the always-valid bound is left in %.3f of the cases", share)
	}
	if share := float64(fixed) / experiments; share < 5*alpha {
		t.Errorf("the fixed threshold is left in %.3f of the cases only", share)
	}
	for _, n := range []int{0, 1, 20, 1e6} {
		if v := audit.AlwaysValid(alpha, n, 20); !(v > 1.96 && v < 100) {
			t.Errorf("AlwaysValid after %d observations is %v", n, v)
		}
	}
}

// Comparing again and again while recordings grow is what Looks is for.
func TestLooks(t *testing.T) {
	const alpha, experiments = 0.05, 100
	load := audittest.Loads()[0]
	random := rand.New(rand.NewPCG(7, 7))
	wrong := map[bool]int{}
	for range experiments {
		a, b := load.Side(random, 1, 200, 1), load.Side(random, 1, 200, 1)
		for _, looks := range []bool{false, true} {
			for n := 20; n <= 200; n += 20 {
				now := func(s audit.Side[string]) audit.Side[string] {
					return audit.Side[string]{Runs: []audit.Run[string]{{Windows: s.Runs[0].Windows[:n]}}}
				}
				v := audit.Compare(now(a), now(b), nil, &audit.Options{Alpha: alpha, Least: 1e-9,
					Looks: looks}).Whole.Verdict
				if v == audit.More || v == audit.Less {
					wrong[looks]++
					break
				}
			}
		}
	}
	if share := float64(wrong[true]) / experiments; share > alpha {
		t.Errorf("with Looks %.3f of the programs differ from themselves", share)
	}
	if share := float64(wrong[false]) / experiments; share < 1.5*alpha {
		t.Errorf("without Looks only %.3f of the programs differ from themselves: the test shows nothing", share)
	}
}

// What begins or ends has nothing on one side: that is a difference, not a fault.
func TestNothingOnOneSide(t *testing.T) {
	for _, test := range []struct {
		a, b float64
		want audit.Verdict
	}{{0, 1e6, audit.More}, {1e6, 0, audit.Less}} {
		d := audit.Compare(constant(12, test.a, 0, 0), constant(12, test.b, 0, 0), []int{0},
			&audit.Options{Least: 0.2, Windows: 5}).Keys[0]
		if d.Verdict != test.want || d.P != 0 {
			t.Errorf("%v to %v: %v (%v), p = %v", test.a, test.b, d.Verdict, d.Reason, d.P)
		}
	}
}

// constant is a side with one key that costs as much in each window, but for step more from one
// window to the next.
func constant(windows int, amount, step, samples float64) (s audit.Side[int]) {
	var run audit.Run[int]
	for i := range windows {
		w := audit.Window[int]{Units: 10}
		if c := (audit.Cost{Amount: amount + float64(i)*step, Samples: samples}); c != (audit.Cost{}) {
			w.Keys, w.Total = map[int]audit.Cost{0: c}, c
		}
		run.Windows = append(run.Windows, w)
	}
	s.Runs = []audit.Run[int]{run}
	return s
}

// No amounts make a comparison panic, and each verdict has a probability.
func FuzzCompare(f *testing.F) {
	f.Add(uint8(12), 0.0, 0.0, 0.0, 1e6, 0.0, 0.0, 0.2)
	f.Add(uint8(12), 1e6, 5e4, 0.0, 0.0, 0.0, 0.0, 0.0)
	f.Add(uint8(6), 1.0, 0.0, 3.0, 1.0, 0.0, 0.0, 0.1)
	f.Add(uint8(1), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
	f.Add(uint8(20), math.MaxFloat64, 0.0, 0.0, math.SmallestNonzeroFloat64, 0.0, 1e300, 0.1)
	f.Fuzz(func(t *testing.T, windows uint8, a, stepA, samplesA, b, stepB, samplesB, least float64) {
		for _, v := range []*float64{&a, &stepA, &samplesA, &b, &stepB, &samplesB, &least} {
			if *v = math.Abs(*v); math.IsNaN(*v) || math.IsInf(*v, 0) {
				*v = 0
			}
		}
		n := int(windows % 32)
		r := audit.Compare(constant(n, a, stepA, samplesA), constant(n, b, stepB, samplesB), []int{0},
			&audit.Options{Least: least, Windows: 5, Looks: windows >= 128})
		if d := r.Keys[0]; (d.Verdict == audit.More || d.Verdict == audit.Less) && !(d.P >= 0 && d.P <= 1) {
			t.Errorf("%v with p = %v", d.Verdict, d.P)
		}
	})
}
