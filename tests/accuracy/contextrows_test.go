package main

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12 }

// Of 100 samples, 20 were walked. Of the other 80, 72 have the right caller, 64 the right three, 60
// all.
func sharedCounts() *profile.Contexts {
	return &profile.Contexts{
		Walked: 20, Linked: 80, Ambiguous: 8, Fitted: 4, Unplaced: 2,
		Check: &profile.ContextCheck{Samples: 78, Right: [3]uint64{72, 64, 60}},
	}
}

func TestContextShares(t *testing.T) {
	got := sharesOf(sharedCounts())
	for what, pair := range map[string][2]float64{
		"walked":            {got.walked, 0.2},
		"ambiguous":         {got.ambiguous, 0.1},
		"fitted":            {got.fitted, 0.05},
		"unplaced":          {got.unplaced, 0.025},
		"first caller":      {got.right[oneLevel], 0.9}, // a share of 80, not of the 78 that were checked
		"first three":       {got.right[threeLevels], 0.8},
		"whole":             {got.right[allLevels], 0.75},
		"all: first caller": {got.all[oneLevel], 0.92},
		"all: first three":  {got.all[threeLevels], 0.84},
		"all: whole":        {got.all[allLevels], 0.8},
	} {
		if !near(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
	walked := sharesOf(&profile.Contexts{Walked: 5, Check: new(profile.ContextCheck)})
	if walked.walked != 1 || !math.IsNaN(walked.right[0]) || walked.all[allLevels] != 1 {
		t.Errorf("got %+v where all was walked", walked)
	}
}

func TestSumContexts(t *testing.T) {
	one := lineOf(*sharedCounts())
	sum := sumContexts([]contextLine{one, one, lineOf(profile.Contexts{Mode: profile.ContextChain, Walked: 3, Linked: 1,
		Ambiguous: 1})})
	want := profile.Contexts{Mode: profile.ContextChain, Walked: 43, Linked: 161, Ambiguous: 17, Fitted: 8, Unplaced: 4}
	check := sum.Check
	sum.Check = nil
	if sum != want || *check != (profile.ContextCheck{Samples: 156, Right: [3]uint64{144, 128, 120}}) {
		t.Errorf("got %+v, %+v", sum, check)
	}
	if one.Check.Samples != 78 {
		t.Error("the sum changed what was summed")
	}
}

func TestMeanShares(t *testing.T) {
	nothing := sharesOf(&profile.Contexts{Walked: 10})
	mean := meanShares([]contextShares{sharesOf(sharedCounts()), nothing})
	if !near(mean.walked, 0.6) || !near(mean.unplaced, 0.025) || !near(mean.right[threeLevels], 0.8) ||
		!near(mean.all[allLevels], 0.9) {
		t.Errorf("got %+v", mean)
	}
	if mean = meanShares([]contextShares{nothing}); !math.IsNaN(mean.right[oneLevel]) || mean.walked != 1 {
		t.Errorf("got %+v of what was walked", mean)
	}
}

func TestAcross(t *testing.T) {
	if got := across([]float64{0.125, math.NaN(), 1}, inPercent); got != "12.5 / - / 100.0" {
		t.Errorf("got %q", got)
	}
}
