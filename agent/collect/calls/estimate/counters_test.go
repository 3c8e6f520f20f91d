package estimate

import (
	"math"
	"testing"
)

// A program that warms up: main is interpreted and counted. It calls parse, which was compiled by
// C1 and by C2; only C1's code counts. The rate of counting code must equal the counters, whatever
// the samples of time suggest.
func TestTallyOfSeveralCodes(t *testing.T) {
	const loop, parse = 0, 1
	alone := func(m MethodID, calls ...int32) []Copy { return []Copy{{Method: m, Parent: -1, BCI: -1, Calls: calls}} }
	in := &Input{
		Duration: 10, CPU: 10, Period: 1. / 400,
		Methods: []Profile{
			{Invocations: 1000, Entered: 100, EntersKnown: true, Known: true,
				Sites: []Site{{BCI: 3, Count: 100e3, Rate: 10e3, Targets: []Target{{parse, 100e3}}}}},
			{Invocations: 20e3, Entered: 2e3, EntersKnown: true, Known: true},
		},
		Codes: []Code{
			{Method: loop, Tier: Interpreted, CountsCalls: true},
			{Method: parse, Tier: Interpreted},
			{Method: parse, Tier: Profiling, CountsCalls: true, Replaced: true, Copies: alone(parse)},
			{Method: parse, Copies: alone(parse)},
		},
		Edges: []Edge{
			{Caller: VM, Callee: 0, Samples: 500},
			{Caller: 0, Site: []Place{{loop, 3}}, Callee: 1, Samples: 500},
			{Caller: 0, Site: []Place{{loop, 3}}, Callee: 2, Samples: 500},
			{Caller: 0, Site: []Place{{loop, 3}}, Callee: 3, Samples: 500},
		},
	}
	rates := Estimate(in, Options{}).Rates
	if counted := rates[1].PerSecond + rates[2].PerSecond; counted < 1.2e3 || counted > 3.5e3 {
		t.Errorf("code that counts is entered %.0f times a second; counted were 2000", counted)
	}
	if all := rates[1].PerSecond + rates[2].PerSecond + rates[3].PerSecond; all < 4e3 || all > 18e3 {
		t.Errorf("all is entered %.0f times a second; 10000 calls were counted", all)
	}
	// C1's code of loop has parse inlined and counts that, too: so the count is only an upper
	// bound.
	in.Codes = append(in.Codes, Code{Method: loop, Tier: Profiling, CountsCalls: true, Copies: []Copy{
		{Method: loop, Parent: -1, BCI: -1, Calls: []int32{3}}, {Method: parse, Parent: 0, BCI: 3},
	}})
	for _, m := range newTally(in, newNetwork(in, newFrequencies(in.Methods))) {
		if inlined := in.Codes[m.codes[0]].Method == parse; m.most != inlined {
			t.Errorf("codes %v: at most: %v", m.codes, m.most)
		}
	}
}

// A method that was not entered in the window may run in a loop all the time, and make calls.
func TestTallyOfLoop(t *testing.T) {
	in := &Input{
		Duration: 10, CPU: 10, Period: 1. / 400,
		Methods: []Profile{{Invocations: 1000, Known: true}},
		Codes:   []Code{{Tier: Interpreted}},
		Edges:   []Edge{{Caller: VM, Callee: 0, Samples: 100}},
	}
	if tally := newTally(in, newNetwork(in, newFrequencies(in.Methods))); len(tally) != 0 {
		t.Errorf("%+v", tally)
	}
}

// A program with two phases: calls of the first one are counted, and show that rates from time are
// four times too high. For the second one only the time is known, and its rates must come out four
// times lower as well.
func TestScaleOfTime(t *testing.T) {
	const codes = 30
	in := &Input{Duration: 10, CPU: 10, Period: 1. / 400}
	alone := func(m MethodID) []Copy { return []Copy{{Method: m, Parent: -1, BCI: -1}} }
	rate := 200 * in.Period / in.CPU / edgeTime / 4 // calls a second of an edge that has 200 samples at it
	for range codes {
		counted, compiled, other := MethodID(len(in.Methods)), MethodID(len(in.Methods)+1), MethodID(len(in.Methods)+2)
		in.Methods = append(in.Methods, Profile{
			Invocations: 1e6, Entered: rate / 100, EntersKnown: true, Known: true,
			Sites: []Site{{BCI: 3, Count: 100e6, Targets: []Target{{compiled, 100e6}}}},
		}, Profile{}, Profile{})
		in.Codes = append(in.Codes, Code{Method: counted, Tier: Interpreted, CountsCalls: true},
			Code{Method: compiled, Copies: alone(compiled)}, Code{Method: other, Copies: alone(other)})
		in.Edges = append(in.Edges, Edge{Caller: CodeID(counted), Site: []Place{{counted, 3}}, Callee: CodeID(compiled),
			Samples: 600, AtEdge: 200},
			Edge{Caller: VM, Callee: CodeID(other), Samples: 600, AtEdge: 200})
	}
	rates := Estimate(in, Options{}).Rates
	for c := 1; c < len(rates); c += 3 {
		first, second := rates[c].PerSecond, rates[c+1].PerSecond
		if math.Abs(math.Log(first/rate)) > 0.3 || math.Abs(math.Log(second/rate)) > 0.5 {
			t.Fatalf("code %d: %.3g calls a second where it was counted, %.3g by time; want %.3g", c, first, second,
				rate)
		}
	}
}
