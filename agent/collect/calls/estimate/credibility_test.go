package estimate

import (
	"math"
	"testing"
)

// TestCredibility has breakpoints observe all links of the chain, with profiles that are wrong by
// some factor.
func TestCredibility(t *testing.T) {
	for _, tt := range []struct {
		factor   float64
		credible bool
	}{{1, true}, {1.2, true}, {2, false}, {0.3, false}} {
		in := chainInput()
		in.Windows = nil
		for m := range in.Methods {
			for s := range in.Methods[m].Sites {
				site := &in.Methods[m].Sites[s]
				site.Count *= tt.factor
				site.Targets[0].Count *= tt.factor
			}
		}
		// Two more callers of leaf make enough comparisons.
		for range 2 {
			c := CodeID(len(in.Codes))
			in.Codes = append(in.Codes, Code{Method: work, Copies: in.Codes[work].Copies})
			in.Edges = append(in.Edges, Edge{Caller: c, Site: []Place{{work, 7}}, Callee: CodeID(leaf), Samples: 100})
		}
		for _, e := range in.Edges[1:] {
			per := map[CodeID]float64{CodeID(loop): 1, CodeID(work): 3, CodeID(leaf): 5}[e.Callee]
			for range 20 {
				in.Windows = append(in.Windows, Window{
					Codes: []CodeID{e.Caller, e.Callee}, Length: 0.02, Armed: 10e-3, Full: true,
					Hits: []Hit{{VM, e.Caller, 10}, {e.Caller, e.Callee, 10 * per}},
				})
			}
		}
		r := Estimate(in, Options{})
		c := r.Credibility
		if c.Credible != tt.credible || math.Abs(c.Error-math.Abs(math.Log(tt.factor))) > 0.1 || c.Comparisons != 5 {
			t.Errorf("factor %v: %+v", tt.factor, c)
		}
		// Observations win, whatever the profiles say.
		callers := 0.
		for _, c := range []CodeID{CodeID(work), 4, 5} {
			callers += r.Rates[c].PerSecond
		}
		if perEntry := r.Rates[leaf].PerSecond / callers; math.Abs(math.Log(perEntry/5)) > 0.2 {
			t.Errorf("factor %v: work calls leaf %.1f times, want 5", tt.factor, perEntry)
		}
	}
}

func TestUncheckedIsCredible(t *testing.T) {
	c := Estimate(chainInput(), Options{}).Credibility
	if !c.Credible || !math.IsNaN(c.Error) || c.Comparisons != 0 {
		t.Errorf("%+v", c)
	}
}
