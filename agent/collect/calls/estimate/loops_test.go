package estimate

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A method that loops for ever calls two others, of which one is counted. Nothing is known per
// entry of the loop, but the VM counted how often it calls each.
func loopInput() *Input {
	const loop, often, rarely = 0, 1, 2
	alone := func(m MethodID) []Copy { return []Copy{{Method: m, Parent: -1, BCI: -1}} }
	return &Input{
		Duration: 10, CPU: 1, Period: 0.01,
		Methods: []Profile{
			{Invocations: 1, Work: 1e6, Sites: []Site{
				{BCI: 3, Count: 5000, Targets: []Target{{often, 5000}}},
				{BCI: 9, Count: 1000, Targets: []Target{{rarely, 1000}}},
			}},
			{}, {Entered: 460, EntersKnown: true},
		},
		Codes: []Code{
			{Method: loop, Loop: true, Copies: []Copy{{Method: loop, Parent: -1, BCI: -1, Calls: []int32{3, 9}}}},
			{Method: often, Copies: alone(often)},
			{Method: rarely, Tier: Profiling, CountsCalls: true, Copies: alone(rarely)},
		},
		Edges: []Edge{
			{Caller: VM, Callee: 0, Samples: 20},
			{Caller: 0, Site: []Place{{loop, 3}}, Callee: 1, Samples: 70},
			{Caller: 0, Site: []Place{{loop, 9}}, Callee: 2, Samples: 10},
		},
	}
}

func TestLoops(t *testing.T) {
	in := loopInput()
	r := Estimate(in, Options{})
	check(t, in, r)
	seen := false
	for _, c := range r.Calls {
		if c.Callee == 0 {
			t.Errorf("the loop is called: %+v", c)
		}
		if c.Callee == 1 {
			seen = true
			if c.Caller != (Place{0, 3}) || math.Abs(math.Log(c.Rate/2300)) > 0.2 || c.Low > 2300 || c.High < 2300 ||
				c.High > 10*2300 {
				t.Errorf("%+v, want 2300 calls a second", c)
			}
		}
	}
	if !seen {
		t.Errorf("no call out of the loop: %+v", r.Calls)
	}
}

// What is inlined into a loop has a rate, too: that of the calls that the loop makes gives it.
func TestInlinedInLoop(t *testing.T) {
	in := loopInput()
	in.Codes[0].Copies = []Copy{{Method: 0, Parent: -1, BCI: -1, Calls: []int32{9}}, {Method: 1, Parent: 0, BCI: 3}}
	in.Edges = []Edge{in.Edges[0], in.Edges[2]}
	for _, c := range Estimate(in, Options{Logical: true}).Calls {
		if c.Callee == 1 && c.Basis == profile.Inferred && c.Low <= 2300 && c.High >= 2300 && c.High < 20*2300 {
			return
		}
	}
	t.Errorf("want 2300 inlined calls a second: %+v", Estimate(in, Options{Logical: true}).Calls)
}

// Calls that counting code makes are known, even if most code of the program does not count.
func TestMadeByCountingCode(t *testing.T) {
	in := loopInput()
	in.Methods[2] = Profile{}
	in.Codes[2].Tier, in.Codes[2].CountsCalls = Compiled, false
	in.Codes[0].Tier, in.Codes[0].CountsCalls = Profiling, true
	p := &in.Methods[0]
	p.Known, p.Covered = true, 1
	p.Sites[0].Rate, p.Sites[1].Rate = 700, 140
	r := Estimate(in, Options{})
	for code, want := range map[CodeID]float64{1: 700, 2: 140} {
		if got := r.Rates[code]; math.Abs(math.Log(got.PerSecond/want)) > 0.1 || factor(got.Variance) > 1.5 ||
			got.Evidence != Counter {
			t.Errorf("code %d: %+v, want %v calls a second", code, got, want)
		}
	}
	// If interpreted code counts into the same place, it may have made the calls.
	in.Codes = append(in.Codes, Code{Method: 0, Tier: Interpreted})
	if got := Estimate(in, Options{}).Rates[1]; factor(got.Variance) < 3 {
		t.Errorf("counted by two codes: %+v", got)
	}
}

// The time in a code and the bytecode that an entry executes give its rate, whether entries are
// short or long.
func TestWork(t *testing.T) {
	for _, additions := range []float64{50, 5e3, 5e5} {
		const rate, samples = 1, 80
		in := &Input{
			Duration: 10, CPU: 1, Period: 0.01,
			Methods: []Profile{{Invocations: 1e4, Work: 1e4 * additions}},
			Codes:   []Code{{Method: 0, Copies: []Copy{{Method: 0, Parent: -1, BCI: -1}}}},
			Edges:   []Edge{{Caller: VM, Callee: 0, Samples: samples}},
		}
		want := samples * in.Period / in.Duration / (additions * unitTime)
		got := Estimate(in, Options{}).Rates[0]
		if off := math.Abs(math.Log(got.PerSecond / want)); off > math.Log(factor(got.Variance)) ||
			factor(got.Variance) > 50 {
			t.Errorf("%v additions: %+v, want about %.3g calls a second", additions, got, want)
		}
		in.Methods[0].Work = 0
		if without := Estimate(in, Options{}).Rates[0]; without.Variance <= got.Variance {
			t.Errorf("%v additions: %+v, without them %+v", additions, got, without)
		}
	}
}
