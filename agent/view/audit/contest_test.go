package audit_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
)

// A timed program: how long one run takes, by its number.
type timed struct {
	name string
	next func(random *rand.Rand, i int) (ns float64, runs uint32)
}

func logNormal(random *rand.Rand) float64 { return 1000 * math.Exp(0.5*random.NormFloat64()) }

func timedPrograms() []timed {
	waves := 0.0
	return []timed{
		{"log-normal", func(r *rand.Rand, _ int) (float64, uint32) { return logNormal(r), 1 }},
		{"interrupted", func(r *rand.Rand, _ int) (float64, uint32) {
			if r.IntN(2000) == 0 {
				return 4e6, 1
			}
			return logNormal(r), 1
		}},
		{"slow waves", func(r *rand.Rand, i int) (float64, uint32) {
			if i == 0 {
				waves = 0
			}
			waves = 0.99*waves + 0.05*r.NormFloat64()
			return logNormal(r) * math.Exp(waves), 1
		}},
		{"merged", func(r *rand.Rand, _ int) (float64, uint32) {
			n := 1 + r.IntN(8)
			return logNormal(r) * float64(n), uint32(n)
		}},
	}
}

// contend times versions at random, of which the second takes slow times as long, until there is a
// verdict.
func contend(
	random *rand.Rand, p timed, slow float64, most int, opt *audit.ContestOptions,
) (d audit.Difference, timings int) {
	c := audit.NewContest(opt)
	for i := range most {
		ns, runs := p.next(random, i)
		version := random.IntN(2)
		if version == 1 {
			ns *= slow
		}
		c.Add(version, ns, runs)
		if i%1000 == 999 {
			if d = c.Look(0, 1, i == most-1); d.Verdict != audit.Undecided {
				return d, i + 1
			}
		}
	}
	return d, most
}

// Equal versions are hardly ever found different, however often one looks; a version that is slower
// is found, and faster ones too.
func TestContest(t *testing.T) {
	for _, p := range timedPrograms() {
		t.Run(p.name, func(t *testing.T) {
			const seeds = 60
			var wrong, slower, faster int
			for seed := range uint64(seeds) {
				random := rand.New(rand.NewPCG(seed, 15))
				opt := &audit.ContestOptions{Confidence: 0.95, Least: 1e-6}
				if d, _ := contend(random, p, 1, 40_000, opt); d.Verdict != audit.Undecided {
					wrong++
				}
				if d, _ := contend(random, p, 1.05, 100_000, nil); d.Verdict == audit.More && d.Low > 0 &&
					d.Percent > 0 {
					slower++
				}
				if d, _ := contend(random, p, 0.9, 100_000, nil); d.Verdict == audit.Less && d.High < 0 {
					faster++
				}
			}
			if wrong > 3+4 { // 5 %, and two standard errors
				t.Errorf("%d of %d verdicts on equal versions", wrong, seeds)
			}
			if slower < seeds*9/10 || faster < seeds*9/10 {
				t.Errorf("of %d, %d found slower by 5 %% and %d faster by 10 %%", seeds, slower, faster)
			}
		})
	}
}

// Versions that do not differ are the same in the end, if that is what does not matter.
func TestContestSame(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	d, n := contend(random, timedPrograms()[0], 1, 200_000, &audit.ContestOptions{Least: 0.05})
	if d.Verdict != audit.Same || d.Low < -5 || d.High > 5 || n > 100_000 {
		t.Errorf("%+v after %d", d, n)
	}
	for _, c := range []struct {
		a, b float64
		want audit.Reason
	}{{-5, 10, audit.Short}, {10, math.Inf(-1), audit.Short}} {
		contest := audit.NewContest(nil)
		for range 300 {
			contest.Add(0, c.a, 1)
			contest.Add(1, c.b, 1)
		}
		if d := contest.Look(0, 1, true); d.Reason != c.want || d.Verdict != audit.Undecided {
			t.Errorf("%+v", d)
		}
	}
	empty := audit.NewContest(nil)
	empty.Add(99, 1, 1)
	empty.Add(0, 1, 0)
	if d := empty.Look(0, 1, true); d.Verdict != audit.Undecided || d.Reason != audit.TooFew {
		t.Errorf("%+v", d)
	}
	few := audit.NewContest(nil)
	for i := range 60 {
		few.Add(i%2, 1000+float64(i%3)+500*float64(i%2), 1)
	}
	if d := few.Look(0, 1, false); d.Reason != audit.TooFew {
		t.Errorf("held timings count: %+v", d)
	}
	if d := few.Look(0, 1, true); d.Verdict != audit.More {
		t.Errorf("at the end: %+v", d)
	}
}

// The scores of section 6.1: the score of timings of nothing is 1000, that of the authors' example
// is 1.
func TestScores(t *testing.T) {
	var s audit.Scores
	s.Add(0, 88, 1)
	if math.Abs(s.Perturb()-1000) > 1e-9 {
		t.Errorf("perturb score of nothing %v", s.Perturb())
	}
	s = audit.Scores{}
	s.Add(187.9-88, 88, 1)
	if math.Abs(s.Perturb()-1) > 1e-9 {
		t.Errorf("perturb score of 187.9 cycles %v", s.Perturb())
	}
	var merged, split audit.Scores
	merged.Add(40, 10, 4)
	merged.Add(15, 10, 1)
	for range 4 {
		split.Add(10, 10, 1)
	}
	split.Add(15, 10, 1)
	if math.Abs(merged.Converge()-1) > 1e-9 || math.Abs(split.Converge()-1) > 1e-9 { // 5 timings, a variance of 5
		t.Errorf("converge scores %v merged, %v split, want 1", merged.Converge(), split.Converge())
	}
}

// What lasts for many timings and concerns one version only, as an unlucky place in a cache while a
// neighbour is busy, is no verdict: over time it comes and goes.
func TestContestWaves(t *testing.T) {
	const seeds, wave, timings = 40, 1500, 100_000
	wrong := 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 7))
		c := audit.NewContest(nil)
		slow := 1.0
		for i := range timings {
			if i%wave == 0 {
				slow = 0.9 + 0.2*float64(random.IntN(2))
			}
			ns := 1000 * (0.9 + 0.2*random.Float64())
			version := random.IntN(2)
			if version == 1 {
				ns *= slow
			}
			c.Add(version, ns, 1)
		}
		if v := c.Look(0, 1, true).Verdict; v == audit.More || v == audit.Less {
			wrong++
		}
	}
	if wrong > 2 { // There are 40 verdicts at a confidence of 99 %.
		t.Errorf("%d of %d verdicts are false", wrong, seeds)
	}
}

// A few timings that are no longer than timing nothing do not make the others too short; many do.
func TestTooShort(t *testing.T) {
	for _, test := range []struct {
		none  int // number of timings in a thousand that are as short as nothing
		least float64
		most  float64
	}{{0, 0.3, 0.5}, {5, 0.3, 0.5}, {500, 5, 6}, {1000, 10, 10}} {
		var s audit.Scores
		for i := range 1000 {
			ns := 3000.0
			if i < test.none {
				ns = -20
			}
			s.Add(ns, 1000, 1)
		}
		if got := s.TooShort(); got < test.least || got > test.most {
			t.Errorf("%d of nothing: %v, want %v to %v", test.none, got, test.least, test.most)
		}
	}
	if got := new(audit.Scores).TooShort(); got != 0 {
		t.Errorf("%v of nothing", got)
	}
}
