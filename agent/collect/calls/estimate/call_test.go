package estimate

import "testing"

// unseenInput is a root that was sampled. It has two calls of a method without samples: one from
// its own body, and one from an inlined copy of loop. Calls that were inlined there are not made.
func unseenInput() *Input {
	in := chainInput()
	in.Edges = in.Edges[:1]
	in.Codes = []Code{
		{Method: root, Copies: []Copy{
			{Method: root, Parent: -1, BCI: -1, Calls: []int32{3}},
			{Method: loop, Parent: 0, BCI: 7, Calls: []int32{1, 5}},
			{Method: leaf, Parent: 1, BCI: 9},
		}},
		{Method: work, Copies: []Copy{{Method: work, Parent: -1, BCI: -1}}},
		{Method: leaf, Tier: Native},
	}
	always := func(bci int32, callee MethodID, count float64) Site {
		return Site{BCI: bci, Count: count, Targets: []Target{{callee, count}}}
	}
	in.Methods[root] = Profile{Invocations: 100, Sites: []Site{always(3, work, 200), always(7, loop, 300)}}
	in.Methods[loop] = Profile{Invocations: 300, Sites: []Site{
		always(1, work, 600), always(4, work, 300), always(5, leaf, 300), always(9, leaf, 300),
	}}
	in.Methods[work] = Profile{Invocations: 900}
	return in
}

func TestUnseenCalls(t *testing.T) {
	in := unseenInput()
	seen := collect(in)
	found := unseen(in, newFrequencies(in.Methods), seen)
	want := map[Place]CodeID{{root, 3}: 1, {loop, 1}: 1}
	for _, c := range found {
		if callee, ok := want[c.site[0]]; !ok || callee != c.callee || c.caller != 0 || c.samples != 0 {
			t.Errorf("%+v is no call", c)
		}
		delete(want, c.site[0])
	}
	for at := range want {
		t.Errorf("the call at %v is missing", at)
	}
	again := unseen(in, newFrequencies(in.Methods), append(seen, found...))
	if len(again) != 0 {
		t.Errorf("%+v are found twice", again)
	}
}

// TestUnseenRates: the rate of a code without samples is the sum of the calls into it.
func TestUnseenRates(t *testing.T) {
	in := unseenInput()
	r := Estimate(in, Options{})
	check(t, in, r)
	// 2 calls an entry from root, and 3 times 2 from loop.
	if ratio := r.Rates[1].PerSecond / r.Rates[0].PerSecond; ratio < 7.5 || ratio > 8.5 {
		t.Errorf("rates %+v: work is called %.2f times a root, want 8", r.Rates, ratio)
	}
}

// TestNativeBehindItsReplacement: a compiler replaces a native method by its own code, which calls
// the method only in cases that it cannot handle. Without samples, such a call counts as inferred;
// the method's wrapper is not called.
func TestNativeBehindItsReplacement(t *testing.T) {
	in := unseenInput()
	found := false
	for _, c := range Estimate(in, Options{Logical: true}).Calls {
		if c.Callee == leaf && c.Caller == (Place{loop, 5}) {
			found = true
			if c.Basis.String() != "inferred" {
				t.Errorf("%+v, want it inferred", c)
			}
		}
	}
	if !found {
		t.Error("the call is missing")
	}
}
