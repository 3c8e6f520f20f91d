package estimate

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// logicalInput is one code, of root, that is entered some 1000 times a second. loop was inlined
// into it, and work into loop for three quarters of the receivers; leaf was inlined without a
// trace.
func logicalInput() *Input {
	in := chainInput()
	in.Edges = in.Edges[:1]
	in.Codes = in.Codes[:1]
	in.Codes[0].Copies = []Copy{
		{Method: root, Parent: -1, BCI: -1, Calls: []int32{1}},
		{Method: loop, Parent: 0, BCI: 7},
		{Method: work, Parent: 1, BCI: 7},
	}
	in.Methods[loop].Sites = []Site{{BCI: 7, Count: 200, Targets: []Target{{work, 150}}}}
	in.Methods[work].Sites = []Site{{BCI: 7, Count: 400, Targets: []Target{{leaf, 400}}}}
	return in
}

func TestLogical(t *testing.T) {
	in := logicalInput()
	if r := Estimate(in, Options{}); len(r.Calls) != 1 {
		t.Errorf("physical calls %+v, want only that of the root", r.Calls)
	}
	r := Estimate(in, Options{Logical: true})
	check(t, in, r)
	entries := r.Rates[0].PerSecond
	want := map[Place]Call{
		{root, 7}: {Callee: loop, Rate: 1},
		{loop, 7}: {Callee: work, Rate: 1.5},
		{work, 7}: {Callee: leaf, Rate: 6}, // 1.5 times 4
	}
	for _, c := range r.Calls[1:] {
		w, ok := want[c.Caller]
		if !ok || c.Callee != w.Callee || math.Abs(c.Rate/entries-w.Rate) > 1e-6 || c.Basis != profile.Inferred {
			t.Errorf("got %+v (%.2f an entry), want %+v", c, c.Rate/entries, w)
		}
		delete(want, c.Caller)
	}
	for at, w := range want {
		t.Errorf("no call at %v, want %+v", at, w)
	}
}

// TestNeverCalled: a callee compiled into a site with a count of zero is not called there, and
// calls nothing. C1 compiles sites that are never executed.
func TestNeverCalled(t *testing.T) {
	in := logicalInput()
	in.Methods[loop].Sites = []Site{{BCI: 7}}
	r := Estimate(in, Options{Logical: true})
	check(t, in, r)
	for _, c := range r.Calls {
		if c.Callee == work || c.Caller.Method == work {
			t.Errorf("%+v, of a site that was never executed", c)
		}
	}
	if len(r.Calls) != 2 {
		t.Errorf("%d calls, want that of root and that of loop", len(r.Calls))
	}
}

// TestMadeCall: a call whose callee has code of its own and was never inlined is made, sampled or
// not; so are the calls that the callee makes.
func TestMadeCall(t *testing.T) {
	in := logicalInput()
	in.Codes = append(in.Codes, Code{Method: leaf, Copies: []Copy{{Method: leaf, Parent: -1, BCI: -1,
		Calls: []int32{1}}}})
	in.Codes[0].Copies[2].Calls = []int32{7}
	in.Methods[leaf] = Profile{Invocations: 100, Sites: []Site{{BCI: 1, Count: 100, Targets: []Target{{root, 100}}}}}
	r := Estimate(in, Options{Logical: true})
	made := map[Place]MethodID{}
	for _, c := range r.Calls {
		if c.Basis == profile.Estimated {
			made[c.Caller] = c.Callee
		} else if c.Callee == leaf || c.Caller.Method == leaf {
			t.Errorf("%+v, want it to be made", c)
		}
	}
	if made[Place{work, 7}] != leaf || made[Place{leaf, 1}] != root {
		t.Errorf("made are %v", made)
	}
}

func TestRecursionEnds(t *testing.T) {
	in := logicalInput()
	in.Methods[leaf] = Profile{Invocations: 100, Sites: []Site{
		{BCI: 1, Count: 100, Targets: []Target{{work, 50}, {leaf, 50}}},
		{BCI: 4, Count: 100, Targets: []Target{{loop, 100}}},
	}}
	check(t, in, Estimate(in, Options{Logical: true}))
	check(t, in, Estimate(in, Options{Logical: true, Depth: 1}))
}

// TestWideProfiles: profiles in which everything calls everything are processed in bounded time.
func TestWideProfiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	const many = 60
	in := logicalInput()
	in.Methods = make([]Profile, many)
	for m := range in.Methods {
		in.Methods[m].Invocations = 10
		for to := range many {
			site := Site{BCI: int32(to), Count: 10, Targets: []Target{{MethodID(to), 10}}}
			in.Methods[m].Sites = append(in.Methods[m].Sites, site)
		}
	}
	in.Codes[0].Copies = in.Codes[0].Copies[:1]
	check(t, in, Estimate(in, Options{Logical: true}))
}
