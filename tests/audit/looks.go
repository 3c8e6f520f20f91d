package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// spread is the standard deviation of the logarithm of a timing: some are three times as long as
// others.
const spread = 0.5

// perLook is how many timings of each version the paper takes before it looks again.
const perLook = 100

// A rule is the number of standard errors from which a difference of n timings a side is a verdict.
type rule struct {
	name      string
	threshold func(alpha float64, n int) float64
}

var rules = []rule{
	{"fixed threshold, as in the paper",
		func(alpha float64, _ int) float64 { return math.Sqrt2 * math.Erfcinv(alpha) }},
	{"always valid", func(alpha float64, n int) float64 { return audit.AlwaysValid(alpha, n, perLook) }},
}

// looks takes timings of two versions until there is a verdict: 100 of each, then 100 more, and so
// on.
func (m manner) looks() (outcome harness.Outcome) {
	table := report.Table{Header: []string{"rule", "confidence, %", "difference, %", "false, %", "right, %",
		"undecided, %", "timings a side until the verdict"}}
	for _, confidence := range []float64{0.8, 0.99, 0.9999} {
		for _, r := range rules {
			for _, slower := range []float64{0, 1, 2, 5, 10} {
				var right, wrong, undecided, timings int
				for seed := range m.seeds {
					random := rand.New(rand.NewPCG(uint64(seed), uint64(1000*slower)))
					n, sign := r.decide(random, 1-confidence, 1+slower/100, m.timings)
					switch {
					case sign == 0:
						undecided++
						continue
					case sign > 0 && slower > 0:
						right++
					default:
						wrong++
					}
					timings += n
				}
				mean := "-"
				if decided := right + wrong; decided > 0 {
					mean = strconv.Itoa(timings / decided)
				}
				table.Add(r.name, fmt.Sprint(100*confidence), fmt.Sprint(slower), percent(wrong, m.seeds),
					percent(right, m.seeds), percent(undecided, m.seeds), mean)
				outcome.Failed = outcome.Failed || r.name != rules[0].name && tooMany(wrong, m.seeds, 1-confidence)
			}
		}
	}
	outcome.Tables = []harness.Table{{Marker: "audit-looks", Table: table}}
	return outcome
}

// decide returns after how many timings of each version there is a verdict, and whether B is slower
// (1) or faster (-1); 0 if there is none after most timings.
func (r rule) decide(random *rand.Rand, alpha, slow float64, most int) (n, sign int) {
	var sum, square [2]float64
	for n < most {
		for range perLook {
			for version, factor := range [2]float64{1, slow} {
				t := factor * math.Exp(spread*random.NormFloat64())
				sum[version] += t
				square[version] += t * t
			}
			n++
		}
		var variance float64
		for version := range sum {
			mean := sum[version] / float64(n)
			variance += (square[version]/float64(n) - mean*mean) / float64(n-1)
		}
		difference := (sum[1] - sum[0]) / float64(n)
		if math.Abs(difference) > r.threshold(alpha, n)*math.Sqrt(variance) {
			if difference > 0 {
				return n, 1
			}
			return n, -1
		}
	}
	return n, 0
}
