package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A rarely invoked method, as in figure 8 of the paper: most of its time is in a loop, whose
// iterations vary less than its invocations.
const (
	iterations   = 200 // iterations of an invocation, on average about
	iterationNs  = 1000
	outsideNs    = 5000 // ns of an invocation outside of the loop
	ofIterations = 0.5  // standard deviation of the logarithm of the number of iterations
	ofIteration  = 0.3  // and of the time of one
)

// converge is how long versions must run until a contest has a verdict: by timings of invocations,
// and of invocations and loops.
func (m manner) converge() (outcome harness.Outcome) {
	table := report.Table{Header: []string{"rule", "timings of", "confidence, %", "difference, %", "false, %",
		"right, %", "undecided, %", "program time until the verdict, ms"}}
	seeds := min(m.seeds, 100)
	for _, confidence := range []float64{0.8, 0.9999} {
		for _, fixed := range []bool{true, false} {
			for _, loops := range []bool{false, true} {
				for _, slower := range []float64{0, 1, 2, 5, 10} {
					var right, wrong int
					var took time.Duration
					for seed := range seeds {
						random := rand.New(rand.NewPCG(uint64(seed), uint64(8000+100*slower)))
						opt := &audit.ContestOptions{Confidence: confidence, Least: 1e-9, Fixed: fixed}
						spent, verdict := converge(random, opt, loops, 1+slower/100,
							time.Duration(m.timings)*20*time.Microsecond)
						switch {
						case verdict == audit.More && slower > 0:
							right++
						case verdict != audit.Undecided:
							wrong++
						default:
							continue
						}
						took += spent
					}
					mean := "-"
					if n := right + wrong; n > 0 {
						mean = strconv.FormatFloat(took.Seconds()*1000/float64(n), 'f', 1, 64)
					}
					rule, of := rules[1].name, "invocations"
					if fixed {
						rule = rules[0].name
					}
					if loops {
						of = "invocations and iterations"
					}
					table.Add(rule, of, fmt.Sprint(100*confidence), fmt.Sprint(slower), percent(wrong, seeds),
						percent(right, seeds), percent(seeds-right-wrong, seeds), mean)
					outcome.Failed = outcome.Failed || !fixed && tooMany(wrong, seeds, 1-confidence)
				}
			}
		}
	}
	outcome.Tables = []harness.Table{{Marker: "audit-converge", Table: table}}
	return outcome
}

// converge invokes two versions at random until there is a verdict, or they have run for that long.
// It looks after every 100 timings of each version, as the paper does. Always-valid intervals,
// which do not depend on the looks, are checked after 5 % more timings.
func converge(
	random *rand.Rand, opt *audit.ContestOptions, loops bool, slow float64, most time.Duration,
) (time.Duration, audit.Verdict) {
	contest := audit.NewContest(opt)
	var spent float64 // ns
	for timings, next := 0, 2*perLook; spent < float64(most); {
		version := random.IntN(2)
		factor := 1.0
		if version == 1 {
			factor = slow
		}
		whole := factor * outsideNs * math.Exp(ofIteration*random.NormFloat64())
		contestOf := func(ns float64) {
			contest.Add(version, ns, 1)
			timings++
		}
		outside := whole
		for range int(iterations * math.Exp(ofIterations*random.NormFloat64())) {
			t := factor * iterationNs * math.Exp(ofIteration*random.NormFloat64())
			whole += t
			if loops {
				contestOf(t)
			}
		}
		if loops {
			contestOf(outside)
		} else {
			contestOf(whole)
		}
		spent += whole
		if timings < next {
			continue
		}
		next = timings + 2*perLook
		if !opt.Fixed {
			next = max(next, timings*21/20)
		}
		if d := contest.Look(0, 1, false); d.Verdict != audit.Undecided {
			return time.Duration(spent), d.Verdict
		}
	}
	return time.Duration(spent), audit.Undecided
}
