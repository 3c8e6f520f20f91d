package budget

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

func rate(hz, stride, samples int) profile.Rate {
	return profile.Rate{Hz: hz, Burst: profile.Burst{Stride: stride, Samples: samples}}
}

// Costs of engines, as measured on small machines.
var (
	counting = Cost{HitTime: 650, TickTime: 14 * time.Microsecond, SkipTime: 6} // the guest counts
	trapping = Cost{HitTime: 10 * time.Microsecond, TickTime: 100 * time.Microsecond, SkipTime: 10 * time.Microsecond}
	metal    = Cost{HitTime: 150, TickTime: 2 * time.Microsecond, SkipTime: 6}
)

func TestFit(t *testing.T) {
	for _, test := range []struct {
		name  string
		fixed profile.Rate
		cost  Cost
		share float64
		want  profile.Rate
	}{
		{"usual budget: all ticks, the rest goes into samples", profile.Rate{}, counting, 0.01, rate(97, 127, 63)},
		{"ten times as much: more samples", profile.Rate{}, counting, 0.1, rate(97, 127, 723)},
		{"no end of it: bounded", profile.Rate{}, counting, 1, rate(97, 127, 1024)},
		{"a tenth: fewer ticks of few samples", profile.Rate{}, counting, 0.001, rate(27, 127, 16)},
		{"next to nothing", profile.Rate{}, counting, 0.00001, profile.Rate{}},
		{"nothing", profile.Rate{}, counting, 0, profile.Rate{}},
		{"cheaper hits: shorter strides, as skipping is dear in comparison", profile.Rate{}, metal, 0.01,
			rate(97, 31, 306)},
		{"every call traps: no stride", profile.Rate{}, trapping, 0.01, rate(38, 1, 16)},
		{"costs are not known", profile.Rate{}, Cost{}, 0.01, rate(97, 509, 1024)},
		{"stride is fixed", rate(0, 1, 0), counting, 0.01, rate(97, 1, 137)},
		{"samples are fixed", rate(0, 0, 4), counting, 0.01, rate(97, 127, 4)},
		{"many samples are fixed: fewer ticks", rate(0, 0, 512), counting, 0.01, rate(13, 127, 512)},
		{"ticks are fixed", rate(10, 0, 0), counting, 0.01, rate(10, 127, 701)},
		{"more ticks than the budget has", rate(1000, 0, 0), counting, 0.01, profile.Rate{}},
		{"stride leaves room for few samples", rate(0, 1<<18, 0), counting, 0.01, rate(1, 1<<18, 6)},
		{"stride leaves room for none", rate(0, 1<<22, 0), counting, 0.01, profile.Rate{}},
		{"ticks and samples are fixed: the stride gives way", rate(97, 0, 64), counting, 0.01, rate(97, 31, 64)},
		{"and further", rate(97, 0, 136), counting, 0.01, rate(97, 1, 136)},
		{"and no further", rate(97, 0, 150), counting, 0.01, profile.Rate{}},
		{"a budget for few samples of one tick", profile.Rate{}, trapping, 0.0002, rate(1, 1, 10)},
		{"all but ticks", rate(0, 7, 32), counting, 0.01, rate(97, 7, 32)},
		{"all but ticks, dear", rate(0, 7, 32), trapping, 0.01, rate(4, 7, 32)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := fit(Limits{Fixed: test.fixed}, test.cost, test.share)
			if got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
			if spent := perSecond(test.cost, got); spent > test.share*1e9 {
				t.Errorf("%v costs %.0f ns a second", got, spent)
			}
		})
	}
}
