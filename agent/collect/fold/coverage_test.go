package fold

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A simulation observes a process whose events are too expensive, as the governor does.
type simulation struct {
	rng  *rand.Rand
	rate func(time.Duration) float64 // events a second of the process, at any time
	// slices is the number of slices in the next cycle, of which one is observed, given the rate in
	// the last one.
	slices func(seen float64) int
	limit  float64 // hits in a slice after which a draw decides whether it continues
}

const (
	simulationStep = 10 * time.Millisecond
	testCycle      = 5 * time.Second
)

// run returns the estimate of the events in that time, half of its interval, and the true number.
func (s *simulation) run(length time.Duration) (estimate, within, truth float64) {
	var (
		c     Coverage
		d     budget.Duty
		rates = map[uint64]float64{}
		seen  float64
	)
	phase := time.Duration(s.rng.IntN(500)) * simulationStep // windows do not begin with a cycle
	d.Start(0, s.slices(0), testCycle, s.rng.IntN)
	c.Begin(0, nil) // from when events are wanted
	c.End(0)
	before := c.Sums(0)
	var hits float64
	for now := time.Duration(0); now < phase+length; now += simulationStep {
		if now-phase >= 0 && now-phase < simulationStep {
			before, truth, seen, rates = c.Sums(now), 0, 0, map[uint64]float64{}
		}
		switch {
		case d.On && (now >= d.To || !s.goesOn(&c, &d, now, hits)):
			d.On, d.Done = false, true
			c.End(now)
		case d.Over(now):
			d.Start(now, s.slices(hits/d.Length.Seconds()), testCycle, s.rng.IntN)
		}
		if !d.On && !d.Done && now >= d.From {
			hits = 0
			d.Open(now, s.limit)
			c.Begin(now, &Slice{To: d.To, Weight: d.Weight, Length: d.Length, Cycle: d.Cycle()})
		}
		happened := s.rate(now) * simulationStep.Seconds()
		truth += happened
		part := ObservedPart{Cover: &c}
		var ok bool
		if part.Piece, ok = c.At(now); !ok {
			continue
		}
		hits += happened
		e := Event{Sums: EventSums{Values: [profile.MaxEventValues]float64{happened}}}
		part.Apply(&e)
		seen += e.Sums.Values[0]
		rates[part.slice] += part.rate(e.Sums.Values[0])
	}
	part := c.Sums(phase + length).since(before)
	return seen * part.factor, part.within(rates), truth
}

func (s *simulation) goesOn(c *Coverage, d *budget.Duty, now time.Duration, hits float64) bool {
	before := d.Weight
	if !d.GoesOn(hits, s.rng.IntN) {
		return false
	}
	if d.Weight != before {
		c.Reweigh(now, d.Weight)
	}
	return true
}

// Estimates from slices are right on average, and within the interval nearly as often as stated,
// for any process. That includes one that works in bursts, and bursts that end slices and lengthen
// cycles.
func TestCoverageUnbiased(t *testing.T) {
	const length = time.Minute
	runs := 2000
	if testing.Short() {
		runs = 300 // under the race detector
	}
	bursts := func(rng *rand.Rand, quiet, busy, on, off float64) func(time.Duration) float64 {
		// Times of either kind are exponential: a memoryless Markov process.
		state, left := false, 0.0
		return func(time.Duration) float64 {
			for left -= simulationStep.Seconds(); left <= 0; state = !state {
				mean := on
				if state {
					mean = off
				}
				left += rng.ExpFloat64() * mean
			}
			if state {
				return busy
			}
			return quiet
		}
	}
	five := func(float64) int { return 5 }
	adaptive := func(seen float64) int { return 2 + min(int(seen/200), 40) }
	for _, c := range []struct {
		name    string
		rate    func(*rand.Rand) func(time.Duration) float64
		slices  func(float64) int
		limit   float64
		covered float64 // how often the interval must contain the truth
	}{
		{"steady", func(*rand.Rand) func(time.Duration) float64 {
			return func(time.Duration) float64 { return 1000 }
		}, five, math.Inf(1), 0.95},
		{"bursts of 0.3 s", func(rng *rand.Rand) func(time.Duration) float64 { return bursts(rng, 10, 3000, 0.3, 0.7) },
			five, math.Inf(1), 0.93},
		{"bursts of 2 s", func(rng *rand.Rand) func(time.Duration) float64 { return bursts(rng, 10, 3000, 2, 4) }, five,
			math.Inf(1), 0.90},
		{"cycles follow the load", func(rng *rand.Rand) func(time.Duration) float64 {
			return bursts(rng, 10, 3000, 0.3,
				0.7)
		}, adaptive, math.Inf(1), 0.90},
		{"slices end in bursts", func(rng *rand.Rand) func(time.Duration) float64 {
			return bursts(rng, 10, 3000, 0.3,
				0.7)
		}, five, 1800, 0.90},
		{"both", func(rng *rand.Rand) func(time.Duration) float64 { return bursts(rng, 10, 3000, 0.3, 0.7) }, adaptive,
			1800, 0.90},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var sum, squares, all float64
			held := 0
			for range runs {
				s := simulation{rng: rng, rate: c.rate(rng), slices: c.slices, limit: c.limit}
				estimate, within, truth := s.run(length)
				off := estimate - truth
				sum += off
				squares += off * off
				all += truth
				if math.Abs(off) <= within+1e-6*truth {
					held++
				}
			}
			mean, deviation := sum/float64(runs), math.Sqrt(squares/float64(runs))
			// Four standard errors; and one in a thousand for slices that begin up to a step late.
			if allowed := 4*deviation/math.Sqrt(float64(runs)) + all/float64(runs)/1000; math.Abs(mean) > allowed {
				t.Errorf("estimates are off by %.3g on average, of %.4g; allowed are %.3g", mean, all/float64(runs),
					allowed)
			}
			share := float64(held) / float64(runs)
			t.Logf("off by %.2f %% on average, %.1f %% each; within the interval %.1f %% of the time",
				100*mean*float64(runs)/all, 100*deviation*float64(runs)/all, 100*share)
			if allowed := 4 * math.Sqrt(c.covered*(1-c.covered)/float64(runs)); share < c.covered-allowed {
				t.Errorf("the interval holds the truth in %.1f %%", 100*share)
			}
		})
	}
}

// A moment without probes is passed over where they were attached again, not where they were removed
// because of the events that then occurred.
func TestCoverageMoments(t *testing.T) {
	const length = 10 * time.Second
	for _, test := range []struct {
		name    string
		do      func(c *Coverage)
		partial bool
		unsure  bool
	}{
		{"all the time", func(*Coverage) {}, false, false},
		{"removed when the process ended", func(c *Coverage) { c.Retire(length - time.Second) }, false, false},
		{"a burst at the end", func(c *Coverage) { c.End(length - time.Millisecond) }, true, true},
		{"a burst, and slices", func(c *Coverage) {
			c.End(time.Second)
			for at := 2 * time.Second; at < length-time.Second; at += time.Second {
				c.Begin(at, &Slice{To: at + time.Second/2, Weight: 2, Length: time.Second / 2, Cycle: time.Second})
				c.End(at + time.Second/2)
			}
		}, true, false},
	} {
		c := &Coverage{}
		c.Begin(time.Second/2, nil)
		before := c.Sums(time.Second / 2)
		test.do(c)
		part := c.Sums(length).since(before)
		unknown := math.IsInf(part.within(map[uint64]float64{}), 1)
		if part.partial() != test.partial || part.unsure() != test.unsure || unknown != test.unsure {
			t.Errorf("%s: partial %v, unsure %v, interval unknown %v", test.name, part.partial(), part.unsure(), unknown)
		}
	}
	c := &Coverage{}
	c.Begin(0, nil)
	c.End(time.Second)
	before := c.Sums(2 * time.Second)
	c.Begin(2*time.Second+attachTime, nil)
	if part := c.Sums(length).since(before); part.partial() {
		t.Errorf("attaching takes a moment: %v of %v", part.Observed, part.Total)
	}
}

// TestCoverageMissed: the work of a process before its probes were attached is missed, from when
// both it and the window existed.
func TestCoverageMissed(t *testing.T) {
	c := &Coverage{}
	c.Begin(10*time.Second, nil)
	sums := map[*Coverage]*mainSums{c: {}}
	for _, test := range []struct{ began, noticed, missed time.Duration }{
		{3 * time.Second, 9 * time.Second, time.Second}, // started in the window
		{3 * time.Second, time.Second, 7 * time.Second}, // before it
		{12 * time.Second, 9 * time.Second, 0},          // attached in the window before
		{3 * time.Second, 11 * time.Second, 0},          // the probes of its library were already attached
		{10 * time.Second, 10 * time.Second, 0},         // attached at once
	} {
		parts := CoveredParts{began: test.began}
		if got := parts.missed(sums, test.noticed); got != test.missed {
			t.Errorf("window %v, process %v: %v, not %v", test.began, test.noticed, got, test.missed)
		}
	}
}

// Waits that begin before probes are there, or end after they are gone, are not seen. Those that
// are seen stand for them, both in slices and in the stretches between in which a plan is observed
// all the time.
func TestWaitsUnbiased(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const length, rate = 20_000 * time.Second, 5.0 // waits a second
	type wait struct{ begin, end time.Duration }
	var waits []wait
	var truth float64
	for now := time.Duration(0); now < length; now += time.Duration(rng.ExpFloat64() / rate * 1e9) {
		w := wait{now, now + time.Duration((0.05+0.3*rng.Float64())*1e9)} // 50 to 350 ms
		waits, truth = append(waits, w), truth+(w.end-w.begin).Seconds()
	}
	slices.SortFunc(waits, func(a, b wait) int { return cmp.Compare(a.end, b.end) })
	var (
		c      Coverage
		seen   float64
		next   int
		uneven float64 // what is seen, unscaled
	)
	// observe adds the waits that end until to, and were seen if they began after from.
	observe := func(from, to time.Duration, watched bool) {
		for ; next < len(waits) && waits[next].end < to; next++ {
			w := waits[next]
			if !watched || w.begin < from {
				continue
			}
			part := ObservedPart{Cover: &c}
			var ok bool
			if part.Piece, ok = c.At(w.end); !ok {
				t.Fatalf("%v is in no piece", w)
			}
			delay := w.end - w.begin
			e := Event{Kind: profile.Locks, Delay: delay, Sums: EventSums{Events: 1,
				Values: [profile.MaxEventValues]float64{1, 1, delay.Seconds()}}}
			part.Apply(&e)
			seen, uneven = seen+e.Sums.Values[2], uneven+delay.Seconds()
		}
	}
	c.Begin(0, nil)
	c.End(0)
	for now := time.Duration(0); now < length; {
		all := time.Second + time.Duration(rng.IntN(1000))*time.Millisecond
		c.Begin(now, nil)
		observe(now, now+all, true)
		c.End(now + all)
		now += all
		const slice, of = time.Second, 3
		from := now + time.Duration(rng.IntN(of))*slice
		observe(0, from, false)
		c.Begin(from, &Slice{To: from + slice, Weight: of, Length: slice, Cycle: of * slice})
		observe(from, from+slice, true)
		c.End(from + slice)
		now += of * slice
		observe(0, now, false)
	}
	t.Logf("%.3f of the delay were seen, estimated were %.3f", uneven/truth, seen/truth)
	if off := seen/truth - 1; math.Abs(off) > 0.015 {
		t.Errorf("the delay is off by %.1f %%", 100*off)
	}
}
