package estimate

import (
	"math"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

func medianOf(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// Intervals contain the true rate of calls in about 95 of 100 cases, for any number of breakpoint
// windows, and however wrong profiles are. They are narrow where much is known.
func TestIntervals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	const guests = 12
	for _, c := range []struct {
		name   string
		listen int // seconds
		simulated
		held     float64 // least share of the calls whose interval contains the truth
		narrowed float64 // the median factor, at most
	}{
		{"nothing observed", 0, simulated{codes: 300, seconds: 10}, 0.94, 10},
		{"observed", 10, simulated{codes: 300, seconds: 10}, 0.94, 5},
		{"short", 2, simulated{codes: 300, seconds: 1}, 0.93, 40},
		// A third of all profiles is wrong.
		{"other phase", 10, simulated{codes: 300, seconds: 10, polluted: 0.3, shift: 1}, 0.9, 5},
		{"wrong profiles", 10, simulated{codes: 300, seconds: 10, polluted: 1, shift: 1.5}, 0.94, 100},
	} {
		held, all := map[Evidence]int{}, map[Evidence]int{}
		made, heldCalls := 0, 0
		var factors []float64
		for seed := range uint64(guests) {
			c.seed = seed
			sim := newSimulation(c.simulated)
			r := sim.run(c.listen)
			for code, rate := range r.Rates {
				if rate.PerSecond == 0 {
					continue
				}
				all[rate.Evidence]++
				if math.Abs(math.Log(rate.PerSecond/sim.rates[code])) <= math.Log(factor(rate.Variance)) {
					held[rate.Evidence]++
				}
			}
			truth := sim.truth()
			low, high := &graph{}, &graph{}
			for _, call := range r.Calls {
				e := cct.Edge[MethodID, struct{}]{Caller: call.Caller.Method, Callee: call.Callee}
				low.Add(e, call.Low)
				high.Add(e, call.High)
			}
			for e, n := range high.Edges() {
				made++
				if w := truth.Weight(e); w >= low.Weight(e) && w <= n {
					heldCalls++
				}
				factors = append(factors, math.Sqrt(n/low.Weight(e)))
			}
		}
		median := medianOf(factors)
		for e := range evidences {
			if all[e] > 0 {
				t.Logf("%s: rates by %v: %d of %d held", c.name, e, held[e], all[e])
			}
		}
		share := float64(heldCalls) / float64(made)
		t.Logf("%s: %.1f %% of %d calls held, median factor %.2f", c.name, 100*share, made, median)
		if share < c.held {
			t.Errorf("%s: only %.1f %% of %d calls held", c.name, 100*share, made)
		}
		if median > c.narrowed {
			t.Errorf("%s: median factor %.2f, want at most %v", c.name, median, c.narrowed)
		}
	}
}

// A process that waits most of the time makes fewer calls, in proportion to its CPU time. Its few
// samples widen all intervals, as the error of all of them together does not average away, and the
// intervals contain the truth.
func TestIdleGuest(t *testing.T) {
	for _, c := range []struct{ busy, low, high float64 }{{1, 0, 15}, {0.1, 5, 60}, {0.02, 10, 200}} {
		held, made := 0, 0
		var factors []float64
		for seed := range uint64(6) {
			s := newSimulation(simulated{codes: 100, seconds: 10 * c.busy, seed: seed})
			s.in.Duration = 10
			truth := s.truth()
			for _, call := range Estimate(s.in, Options{}).Calls {
				made++
				within := truth.Weight(cct.Edge[MethodID, struct{}]{Caller: call.Caller.Method,
					Callee: call.Callee}) * c.busy
				if within >= call.Low && within <= call.High {
					held++
				}
				factors = append(factors, math.Sqrt(call.High/call.Low))
			}
		}
		share, median := float64(held)/float64(made), medianOf(factors)
		t.Logf("%.2f CPUs: %.1f %% of %d calls held, median factor %.1f", c.busy, 100*share, made, median)
		if share < 0.9 || median < c.low || median > c.high {
			t.Errorf("%.2f CPUs: %.1f %% of %d calls held, median factor %.1f", c.busy, 100*share, made, median)
		}
	}
}

// If all code of a method counts its calls, the counts win over the time. If some code does not
// count, they do not.
func TestUseCounters(t *testing.T) {
	const caller, callee, other = 0, 1, 2
	input := func(codes ...Code) *Input {
		return &Input{
			Duration: 10, CPU: 10, Period: 1. / 400,
			Methods: []Profile{
				{Invocations: 1000, Entered: 100, EntersKnown: true, Known: true, Covered: 1, Sites: []Site{
					{BCI: 3, Count: 4000, Rate: 400, Targets: []Target{{callee, 4000}}},
					{BCI: 7, Count: 3000, Rate: 0, Targets: []Target{{other, 3000}}}, // counts of an earlier phase
				}}, {}, {},
			},
			Codes: append([]Code{
				{Method: callee, Copies: []Copy{{Method: callee, Parent: -1, BCI: -1}}},
				{Method: other, Copies: []Copy{{Method: other, Parent: -1, BCI: -1}}},
			}, codes...),
			Edges: []Edge{
				{Caller: 2, Site: []Place{{caller, 3}}, Callee: 0, Samples: 50, AtEdge: 10},
				{Caller: 2, Site: []Place{{caller, 7}}, Callee: 1, Samples: 50, AtEdge: 10},
				{Caller: VM, Callee: CodeID(1 + len(codes)), Samples: 1000},
			},
		}
	}
	found := func(in *Input) map[MethodID]Call {
		all := map[MethodID]Call{}
		for _, c := range Estimate(in, Options{Logical: true}).Calls {
			if c.Caller.Method == caller {
				all[c.Callee] = c
			}
		}
		return all
	}
	alone := []Copy{{Method: caller, Parent: -1, BCI: -1, Calls: []int32{3, 7}}}
	counting := Code{Method: caller, Tier: Profiling, CountsCalls: true, Copies: alone}
	got := found(input(counting))
	if c := got[callee]; len(got) != 1 || math.Abs(c.Rate-400) > 1e-6 || c.Basis != profile.Counted || !(c.High < 500) {
		t.Errorf("code that counts: %+v", got)
	}
	if got := found(input(Code{Method: caller, Copies: alone}, counting)); got[callee].Basis == profile.Counted ||
		got[other].Rate == 0 {
		t.Errorf("with code that does not count: %+v", got)
	}
	partly := input(counting)
	if partly.Methods[caller].Covered = 0.8; found(partly)[callee].Basis != profile.Estimated {
		t.Errorf("counted in a part of the time: %+v", found(partly)[callee])
	}
	if partly.Methods[caller].Covered, partly.Methods[caller].Elsewhere = 1, true; found(partly)[callee].Basis != profile.Estimated {
		t.Errorf("with unknown code that does not count: %+v", found(partly)[callee])
	}
	inlined := counting
	inlined.Copies = append(slices.Clone(alone), Copy{Method: callee, Parent: 0, BCI: 3})
	in := input(inlined)
	in.Edges = in.Edges[1:]
	if c := found(in)[callee]; math.Abs(c.Rate-400) > 1e-6 || c.Basis != profile.Inferred {
		t.Errorf("inlined in code that counts: %+v", c)
	}
}
