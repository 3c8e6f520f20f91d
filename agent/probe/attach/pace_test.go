package attach

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Samples of 150 µs are taken 3 ms apart, as they would take more than 5 % of a CPU, and as often
// as requested when they cost less.
func TestPace(t *testing.T) {
	const base = time.Millisecond
	p := NewPace(base)
	costs := []bpf.TickCost{{}, {}}
	now := time.Second
	step := func(each, other time.Duration, n uint64) time.Duration {
		costs = []bpf.TickCost{{Samples: costs[0].Samples + n, Time: costs[0].Time + time.Duration(n)*each},
			{Samples: costs[1].Samples + n, Time: costs[1].Time + time.Duration(n)*other}}
		period, changed := p.Adjust(now, costs)
		if changed != (p.changes[len(p.changes)-1].at == now) || period != p.Period() {
			t.Errorf("changed is %t at %v, period %v of %v", changed, now, period, p.Period())
		}
		now += time.Second
		return period
	}
	for i, test := range []struct {
		each, other time.Duration
		n           uint64
		want        time.Duration
	}{
		{0, 0, 0, base},
		{10 * time.Microsecond, 10 * time.Microsecond, 1000, base},
		// The period is as long as the CPU with the longest walks needs.
		{10 * time.Microsecond, 150 * time.Microsecond, 1000, 3 * time.Millisecond},
		{10 * time.Microsecond, 150 * time.Microsecond, 333, 3 * time.Millisecond},
		{10 * time.Microsecond, 100 * time.Second, 9, 2250 * time.Microsecond}, // few samples say nothing
		{10 * time.Microsecond, 10 * time.Microsecond, 400, 1687500},
		{time.Second, 0, 10, slowest},
	} {
		if got := step(test.each, test.other, test.n); got != test.want {
			t.Errorf("step %d: %v, want %v", i, got, test.want)
		}
	}
	for _, test := range []struct{ began, ended, mean, longest time.Duration }{
		{0, time.Second, base, base},
		{3 * time.Second, 5 * time.Second, 3 * time.Millisecond, 3 * time.Millisecond},
		{2 * time.Second, 4 * time.Second, 1500 * time.Microsecond, 3 * time.Millisecond}, // 1,000 and 333 ticks
		{100 * time.Second, 101 * time.Second, slowest, slowest},
	} {
		mean, longest := p.Periods(test.began, test.ended)
		if (mean-test.mean).Abs() > time.Microsecond || longest != test.longest {
			t.Errorf("%v to %v: %v, at most %v; want %v, %v", test.began, test.ended, mean, longest, test.mean,
				test.longest)
		}
	}
}

// A requested period that is longer than the bound is left alone.
func TestPaceOfRareTicks(t *testing.T) {
	p := NewPace(time.Second)
	p.Adjust(1, []bpf.TickCost{{}})
	if period, changed := p.Adjust(2, []bpf.TickCost{{Samples: 10, Time: time.Hour}}); changed ||
		period != time.Second {
		t.Errorf("%v, changed %t", period, changed)
	}
}
