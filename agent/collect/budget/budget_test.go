package budget

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A world is processes under an engine.
type world struct {
	name string
	cpus float64 // CPU time that the processes use a second
	cost Cost    // true cost of hits and ticks
	// belief is the engine's estimate of a hit after s seconds, as a fraction of the true cost; 0:
	// none.
	belief  func(s int) float64
	calls   func(s int) float64 // calls a second of CPU time
	fixed   profile.Rate        // rate that the user has fixed
	least   float64             // least part of the budget that must be used in the end
	share   float64
	pausing bool // sampling must have paused, if only before the cost of a hit was known
	over    bool // the share has no room for the fixed fields
}

func always(v float64) func(int) float64 { return func(int) float64 { return v } }

// after is 0 for n seconds, then v.
func after(n int, v float64) func(int) float64 {
	return func(s int) float64 {
		if s < n {
			return 0
		}
		return v
	}
}

// The cost exceeds the budget by at most one tick on each CPU. There are two exceptions: the engine
// finds that a hit costs more than estimated; or the fixed fields cost more, then by a second of
// them. Most of the budget is used. Fixed fields never change.
func TestController(t *testing.T) {
	for _, w := range []world{
		{name: "busy guest", cpus: 1, cost: counting, belief: after(1, 1), calls: always(100e6), share: 0.01,
			least: 0.75},
		{name: "many CPUs", cpus: 64, cost: counting, belief: after(1, 1), calls: always(100e6), share: 0.01,
			least: 0.75},
		{name: "guest that is mostly idle", cpus: 0.02, cost: counting, belief: after(3, 1), calls: always(100e6),
			share: 0.01, least: 0.7},
		{name: "every call traps", cpus: 2, cost: trapping, belief: after(1, 1), calls: always(1e6), share: 0.01,
			least: 0.7},
		{name: "small budget", cpus: 1, cost: counting, belief: after(1, 1), calls: always(100e6), share: 0.001,
			least: 0.7},
		{name: "large budget", cpus: 1, cost: counting, belief: after(1, 1), calls: always(500e6), share: 0.1,
			least: 0.75},
		{name: "few calls: bursts do not end", cpus: 1, cost: counting, belief: after(1, 1), calls: always(1e4),
			share: 0.01},
		{name: "few calls, then many", cpus: 1, cost: counting, belief: after(1, 1), share: 0.01, least: 0.3,
			calls: func(s int) float64 {
				if s < 30 {
					return 1e4
				}
				return 300e6
			}},
		{name: "the hit is never measured", cpus: 1, cost: counting, belief: always(0), calls: always(100e6),
			share: 0.01},
		{name: "hits are measured twice too dear", cpus: 1, cost: counting, belief: after(1, 2), calls: always(100e6),
			share: 0.01, least: 0.4},
		{name: "samples are fixed", cpus: 1, cost: counting, belief: after(1, 1), calls: always(100e6),
			fixed: rate(0, 0, 64), share: 0.01, least: 0.7},
		{name: "stride is fixed", cpus: 1, cost: counting, belief: after(1, 1), calls: always(100e6),
			fixed: rate(0, 1000, 0), share: 0.01, least: 0.7},
		{name: "stride is fixed at what leaves room for a sample a second", cpus: 1, cost: counting,
			belief: after(1, 1), calls: always(100e6), fixed: rate(0, 1<<20, 0), share: 0.01, least: 0.4,
			pausing: true},
		{name: "ticks and samples are fixed: stride gives way", cpus: 1, cost: counting, belief: after(1, 1),
			calls: always(100e6), fixed: rate(97, 0, 64), share: 0.01, least: 0.6, pausing: true},
		{name: "ticks and stride are fixed: samples give way", cpus: 1, cost: counting, belief: after(1, 1),
			calls: always(100e6), fixed: rate(199, 127, 0), share: 0.01, least: 0.7, pausing: true},
		{name: "ticks are fixed at the usual ones before the hit is measured", cpus: 1, cost: counting,
			belief: after(5, 1), calls: always(100e6), fixed: rate(99, 0, 0), share: 0.01, least: 0.7, pausing: true},
		{name: "ticks are fixed at somewhat too many", cpus: 4, cost: counting, belief: after(1, 1),
			calls: always(100e6), fixed: rate(999, 0, 0), share: 0.01, least: 0.7, pausing: true, over: true},
		{name: "ticks are fixed at what cannot be", cpus: 1, cost: counting, belief: after(1, 1), calls: always(100e6),
			fixed: rate(5000, 0, 0), share: 0.01, least: 0.7, pausing: true, over: true},
		{name: "ticks are fixed, and every call traps", cpus: 1, cost: trapping, belief: after(1, 1),
			calls: always(1e6), fixed: rate(997, 0, 0), share: 0.01, least: 0.7, pausing: true, over: true},
		{name: "ticks and samples are fixed at too many", cpus: 1, cost: counting, belief: after(1, 1),
			calls: always(100e6), fixed: rate(99, 0, 1024), share: 0.01, least: 0.7, pausing: true, over: true},
		{name: "bursts are fixed that no second has room for", cpus: 1, cost: counting, belief: after(1, 1),
			calls: always(100e6), fixed: rate(0, 1000, 4096), share: 0.01, least: 0.5, pausing: true, over: true},
		{name: "a budget without room for a sample a second", cpus: 1, cost: trapping, belief: after(1, 1),
			calls: always(1e6), share: 0.0001, least: 0.5, pausing: true, over: true},
	} {
		t.Run(w.name, func(t *testing.T) {
			w.run(t)
		})
	}
}

func (w world) run(t *testing.T) {
	c := New(Limits{Share: w.share, Fixed: w.fixed})
	var guests, spent float64 // ns
	var hits, arming float64
	var over float64 // the most expensive second, if the fixed fields cost more than the share
	var paused bool
	random := rand.New(rand.NewPCG(1, 2))
	for s := range 60 {
		cost := w.cost
		cost.HitTime = time.Duration(float64(w.cost.HitTime) * w.belief(s))
		cost.Hits, cost.Arming = uint64(hits), time.Duration(arming)
		r := c.Next(Usage{Guests: time.Duration(guests), Cost: cost})
		paused = paused || r.Hz == 0
		if f := w.fixed; r.Hz > 0 && (f.Hz > 0 && r.Hz != f.Hz || f.Stride > 0 && r.Stride != f.Stride ||
			f.Samples > 0 && r.Samples != f.Samples) {
			t.Fatalf("%v, while %v is fixed", r, f)
		}
		burst := float64(w.cost.Burst(r.Burst))

		cpu := w.cpus * (0.5 + random.Float64()) * 1e9
		// A burst takes its calls, and at most as many as there are.
		ticks := float64(r.Hz) * cpu / 1e9
		samples := min(ticks*float64(r.Samples), w.calls(s)*cpu/1e9/float64(max(r.Stride, 1)))
		h := samples
		a := ticks * float64(w.cost.TickTime)
		if w.cost.SkipTime == w.cost.HitTime {
			h *= float64(r.Stride)
		} else {
			a += samples * float64(r.Stride-1) * float64(w.cost.SkipTime)
		}
		hits, arming = hits+h, arming+a
		guests += cpu
		took := h*float64(w.cost.HitTime) + a
		spent += took
		if w.over {
			over = max(over, took)
		}
		if line := w.share * guests; spent > line+burst*max(1, w.cpus)+over {
			t.Fatalf("after %d s %.3f%% are spent, at %v", s, 100*spent/guests, r)
		}
	}
	if used := spent / (w.share * guests); used < w.least {
		t.Errorf("%.0f%% of the budget are used, at %v", 100*used, c.rate)
	}
	if paused != w.pausing || c.Exceeds() != w.over {
		t.Errorf("sampling has paused: %t; the budget has no room for it: %t", paused, c.Exceeds())
	}
}

// Fixed fields that cost one and a half times the budget: two of three seconds are sampled, each
// after its cost was earned. A rate that costs a hundred times the budget begins as soon, and is
// earned afterwards.
func TestControllerTurns(t *testing.T) {
	for _, test := range []struct {
		name          string
		hz            int
		first, second int     // the first second with sampling on, and the first one after a pause
		least, most   int     // seconds of 300 in which it is on
		above         float64 // maximum excess over the limit, in seconds of the budget
	}{
		{"one and a half times", 1000, 2, 5, 190, 200, 0},
		{"ten times", 6600, 3, 13, 27, 32, 7.2},
		{"a hundred times", 66000, 3, 102, 3, 3, 96},
	} {
		c := New(Limits{Share: 0.01, Fixed: rate(test.hz, 1, 0)})
		cost := Cost{HitTime: 1000, TickTime: 14 * time.Microsecond}
		var on []int
		var above float64
		for s := range 300 {
			guests := time.Duration(s) * time.Second
			r := c.Next(Usage{Guests: guests, Cost: cost})
			if r.Hz > 0 {
				if r != rate(test.hz, 1, 1) {
					t.Fatalf("%s: %v", test.name, r)
				}
				on = append(on, s)
			}
			cost.Hits += uint64(r.Hz * r.Samples)
			cost.Arming += time.Duration(r.Hz) * cost.TickTime
			above = max(above, (cost.Time()-(guests+time.Second)/100).Seconds()/0.01)
		}
		second := 0
		for i := 1; i < len(on) && second == 0; i++ {
			if on[i] > on[i-1]+1 {
				second = on[i]
			}
		}
		if len(on) < test.least || len(on) > test.most || on[0] != test.first || second != test.second ||
			above > test.above {
			t.Errorf("%s: on in %d seconds, %v; %.1f s of the budget above the line", test.name, len(on), on, above)
		}
	}
}

// Until the cost of a hit is measured, a tick has enough samples to measure it, even if there is
// room for one only.
func TestControllerMeasures(t *testing.T) {
	c := New(Limits{Share: 0.01, Fixed: rate(999, 0, 0)})
	cost := counting
	cost.HitTime = 0
	begin := func(s int) (profile.Rate, int) {
		for ; s < 20; s++ {
			if r := c.Next(Usage{Guests: time.Duration(s) * time.Second, Cost: cost}); r.Hz > 0 {
				return r, s
			}
		}
		return profile.Rate{}, s
	}
	r, s := begin(0)
	if r != rate(999, 127, 16) {
		t.Errorf("%v in second %d, before a hit is measured", r, s)
	}
	cost.HitTime = counting.HitTime
	if r, s := begin(s + 1); r != rate(999, 127, 1) {
		t.Errorf("%v in second %d, when a hit is measured", r, s)
	}
}

// An engine finds that hits cost four times as much as estimated: sampling pauses until the
// processes have earned the excess, and continues.
func TestControllerPause(t *testing.T) {
	c := New(Limits{Share: 0.01})
	var guests time.Duration
	cost := counting
	next := func() profile.Rate {
		r := c.Next(Usage{Guests: guests, Cost: cost})
		guests += time.Second
		cost.Hits += uint64(r.Hz * r.Samples)
		return r
	}
	for range 10 {
		next()
	}
	cost.HitTime *= 4
	if r := next(); r.Hz != 0 {
		t.Fatalf("sampling goes on at %v with %v of %v spent", r, cost.Time(), guests/100)
	}
	seconds := 1
	for ; next().Hz == 0; seconds++ {
		if seconds > 100 {
			t.Fatal("sampling does not go on")
		}
	}
	if over := cost.Time() - guests/100; over > 0 {
		t.Errorf("after %d s sampling goes on with %v too much spent", seconds, over)
	}
	t.Logf("paused for %d s", seconds)
}

// A completely fixed rate is not changed, whatever it costs.
func TestControllerFixed(t *testing.T) {
	want := rate(1000, 1, 1024)
	c := New(Limits{Share: 0.01, Fixed: want})
	if got := c.Next(Usage{Guests: time.Second, Cost: Cost{Hits: 1e9, HitTime: 1000}}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// A nearly as good rate is not changed: a change reopens events on every CPU.
func TestControllerSteady(t *testing.T) {
	c := New(Limits{Share: 0.01})
	var last profile.Rate
	changes := 0
	for s := range 100 {
		cost := counting
		cost.HitTime += time.Duration(s % 20) // noise
		r := c.Next(Usage{Guests: time.Duration(s) * time.Second, Cost: cost})
		if r != last {
			changes++
		}
		last = r
	}
	if changes > 6 {
		t.Errorf("%d changes", changes)
	}
}
