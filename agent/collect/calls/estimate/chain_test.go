package estimate

import (
	"math"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// The tests' methods are also their codes.
const (
	root MethodID = iota
	loop
	work
	leaf
	methods
)

// chainInput is a root that calls loop once, which calls work 3 times, which calls leaf 5 times.
// Breakpoints observed 1000 calls of root a second. All samples are in bodies, and give no rates.
func chainInput() *Input {
	in := &Input{
		Duration: 10, CPU: 10, Period: 0.01, HitCost: 10e-6,
		Methods: make([]Profile, methods), Codes: make([]Code, methods),
	}
	for m := range methods {
		in.Codes[m] = Code{Method: m, Copies: []Copy{{Method: m, Parent: -1, BCI: -1, Calls: []int32{7}}}}
		in.Methods[m].Invocations = 100
	}
	calls := func(from, to MethodID, count float64) {
		in.Methods[from].Sites = []Site{{BCI: 7, Count: count, Targets: []Target{{to, count}}}}
		in.Edges = append(in.Edges, Edge{
			Caller: CodeID(from), Site: []Place{{from, 7}}, Callee: CodeID(to), Samples: 50 + 100*float64(to),
		})
	}
	in.Edges = []Edge{{Caller: VM, Callee: CodeID(root), Samples: 100}}
	calls(root, loop, 100)
	calls(loop, work, 300)
	calls(work, leaf, 500)
	for range 30 {
		in.Windows = append(in.Windows, Window{
			Codes: []CodeID{CodeID(root)}, Length: 0.02, Armed: 0.02 + 20*10e-6,
			Hits: []Hit{{Caller: VM, Callee: CodeID(root), Count: 20}},
		})
	}
	return in
}

func TestRatesFollowFromProfiles(t *testing.T) {
	r := Estimate(chainInput(), Options{})
	for m, want := range []float64{root: 1000, loop: 1000, work: 3000, leaf: 15000} {
		// The observation of root has an error of some 5 %, which all rates share.
		if got := r.Rates[m].PerSecond; math.Abs(math.Log(got/want)) > 0.2 {
			t.Errorf("method %d: %.0f calls a second, want %.0f", m, got, want)
		}
		want := Profiles
		if MethodID(m) == root {
			want = Listened
		}
		if got := r.Rates[m].Evidence; got != want {
			t.Errorf("method %d: rate by %v, want %v", m, got, want)
		}
	}
	if ratio := r.Rates[leaf].PerSecond / r.Rates[root].PerSecond; math.Abs(ratio-15) > 1.5 {
		t.Errorf("leaf is called %.1f times a root, want 15", ratio)
	}
	if len(r.Calls) != 4 || r.Calls[0].Caller.Method != NoMethod || r.Calls[3].Callee != leaf ||
		r.Calls[3].Basis != profile.Estimated {
		t.Errorf("calls: %+v", r.Calls)
	}
}

func TestRatesFollowUpwards(t *testing.T) {
	in := chainInput()
	for i := range in.Windows { // leaf was observed instead, at the same rate
		in.Windows[i].Codes[0] = CodeID(leaf)
		in.Windows[i].Hits[0] = Hit{Caller: CodeID(work), Callee: CodeID(leaf), Count: 20}
	}
	r := Estimate(in, Options{})
	if got, want := r.Rates[root].PerSecond, 1000/15.; math.Abs(math.Log(got/want)) > 0.3 {
		t.Errorf("root: %.0f calls a second, want %.0f", got, want)
	}
}

func TestOwnCounter(t *testing.T) {
	in := chainInput()
	in.Windows = nil
	in.Codes[root].Tier = Profiling
	in.Methods[root].Entered, in.Methods[root].EntersKnown = 1000, true
	r := Estimate(in, Options{})
	if got := r.Rates[root]; got.Evidence != Counter || math.Abs(math.Log(got.PerSecond/1000)) > 0.2 {
		t.Errorf("root: %+v, want 1000 a second by its counter", got)
	}
}

func TestTheSameTwice(t *testing.T) {
	s := newSimulation(simulated{seed: 1, codes: 100, seconds: 2})
	s.run(2)
	a, b := Estimate(s.in, Options{Logical: true}), Estimate(s.in, Options{Logical: true})
	if !reflect.DeepEqual(a.Calls, b.Calls) {
		t.Error("two estimates of the same differ")
	}
	budget := Budget{Windows: 20, Hits: 1000, Codes: 3, MaxHits: 64, MaxDuration: 0.02}
	if !reflect.DeepEqual(Plan(s.in, a, budget), Plan(s.in, b, budget)) {
		t.Error("two plans for the same differ")
	}
}
