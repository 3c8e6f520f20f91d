package estimate

import (
	"math"
	"testing"
)

// check fails unless a result is usable: valid rates, known methods and sorted calls.
func check(t *testing.T, in *Input, r *Result) {
	t.Helper()
	for c, rate := range r.Rates {
		if !sensible(rate.PerSecond) {
			t.Fatalf("code %d is called %v times a second", c, rate.PerSecond)
		}
	}
	for i, c := range r.Calls {
		if !(c.Rate > 0) || math.IsInf(c.Rate, 0) {
			t.Fatalf("call %+v", c)
		}
		if !in.knowsMethod(c.Callee) || c.Caller.Method != NoMethod && !in.knowsMethod(c.Caller.Method) {
			t.Fatalf("call %+v of unknown methods", c)
		}
		if i > 0 && !before(r.Calls[i-1], c) {
			t.Fatalf("%+v is before %+v", r.Calls[i-1], c)
		}
	}
}

func before(a, b Call) bool {
	x := [4]int64{int64(a.Caller.Method), int64(a.Caller.BCI), int64(a.Callee), int64(a.Basis)}
	y := [4]int64{int64(b.Caller.Method), int64(b.Caller.BCI), int64(b.Callee), int64(b.Basis)}
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}

func TestDegenerate(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"nothing":     func(in *Input) { *in = Input{} },
		"no time":     func(in *Input) { in.Duration = 0 },
		"no period":   func(in *Input) { in.Period = math.NaN() },
		"no methods":  func(in *Input) { in.Methods = nil },
		"no codes":    func(in *Input) { in.Codes = nil },
		"no profiles": func(in *Input) { in.Methods = make([]Profile, methods) },
		"no samples":  func(in *Input) { in.Edges = nil },
		"no windows":  func(in *Input) { in.Windows = nil },
		"only windows": func(in *Input) {
			in.Edges, in.Methods = nil, make([]Profile, methods)
		},
		"samples of nothing": func(in *Input) {
			for i := range in.Edges {
				in.Edges[i].Samples, in.Edges[i].AtEdge = 0, 0
			}
		},
		"a cycle": func(in *Input) {
			back := Edge{Caller: CodeID(leaf), Site: []Place{{leaf, 7}}, Callee: CodeID(root), Samples: 9}
			in.Edges = append(in.Edges, back)
			in.Methods[leaf].Sites = []Site{{BCI: 7, Count: 500, Targets: []Target{{root, 500}}}}
		},
		"recursion": func(in *Input) {
			self := Edge{Caller: CodeID(leaf), Site: []Place{{leaf, 7}}, Callee: CodeID(leaf), Samples: 900}
			in.Edges = append(in.Edges, self)
			in.Methods[leaf].Sites = []Site{{BCI: 7, Count: 99, Targets: []Target{{leaf, 99}}}}
		},
		"copies that are no tree": func(in *Input) {
			in.Codes[root].Copies = []Copy{{Method: root}, {Method: leaf, Parent: 1}, {Method: work, Parent: 7}}
		},
		"a first copy with a parent": func(in *Input) {
			in.Codes[root].Copies = []Copy{{Method: root, Parent: 2}, {Method: loop, Parent: 0, BCI: 7}}
		},
		"numbers that are none": func(in *Input) {
			in.Edges[0].Samples, in.Edges[1].AtEdge = math.Inf(1), math.NaN()
			in.Methods[root].Sites[0].Count = math.NaN()
			in.Methods[loop].Invocations = math.Inf(1)
			in.Windows[0].Armed, in.Windows[1].Hits[0].Count = math.NaN(), -1
		},
		"references to nothing": func(in *Input) {
			in.Edges[0].Callee, in.Edges[1].Caller = 99, -7
			in.Edges[2].Site[0].Method = 99
			in.Codes[leaf].Method = 99
			in.Windows[0].Codes[0], in.Windows[1].Hits[0].Callee = 99, -2
			in.Methods[root].Sites[0].Targets[0].Method = -4
		},
		"enormous profiles": func(in *Input) {
			for m := range in.Methods {
				in.Methods[m].Invocations = 3
				for s := range in.Methods[m].Sites {
					in.Methods[m].Sites[s].Count = 1e300
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := chainInput()
			change(in)
			r := Estimate(in, Options{Logical: true})
			check(t, in, r)
			for _, request := range Plan(in, r, budget()) {
				if len(request.Codes) == 0 || !sensible(request.Duration) || request.Duration == 0 {
					t.Errorf("request %+v", request)
				}
			}
		})
	}
}

// TestWithoutProfiles: samples and breakpoints alone give rates.
func TestWithoutProfiles(t *testing.T) {
	in := chainInput()
	in.Methods = make([]Profile, methods)
	r := Estimate(in, Options{})
	if got := r.Rates[root].PerSecond; math.Abs(math.Log(got/1000)) > 0.3 {
		t.Errorf("root: %.0f calls a second, want 1000 as observed", got)
	}
	if got := r.Rates[leaf]; got.PerSecond <= 0 || got.Evidence != Time {
		t.Errorf("leaf: %+v, want a rate by time", got)
	}
}
