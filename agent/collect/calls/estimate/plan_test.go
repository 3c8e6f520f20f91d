package estimate

import (
	"slices"
	"testing"
)

func budget() Budget {
	return Budget{Windows: 12, Hits: 500, Codes: 3, MaxHits: 64, MaxDuration: 0.02}
}

func TestPlanKeepsToBudget(t *testing.T) {
	s := newSimulation(simulated{seed: 3, codes: 200, seconds: 5})
	for round := range 5 {
		r := Estimate(s.in, Options{})
		plan := Plan(s.in, r, budget())
		if len(plan) == 0 || len(plan) > budget().Windows {
			t.Fatalf("round %d: %d windows planned", round, len(plan))
		}
		hits := 0.
		for _, q := range plan {
			expected := 0.
			for _, c := range q.Codes {
				expected += r.Rates[c].PerSecond * q.Duration
			}
			hits += min(expected, float64(q.MaxHits))
			if len(q.Codes) > budget().Codes || q.MaxHits > budget().MaxHits || q.Duration > budget().MaxDuration {
				t.Errorf("round %d: %+v is beyond the budget", round, q)
			}
		}
		if hits > budget().Hits*1.001 {
			t.Errorf("round %d: %.0f hits are to be expected", round, hits)
		}
		s.listen(plan)
	}
}

// TestPlanObservesTheRoot: if all rates follow from a rarely called root, Plan observes the root or
// its callee.
func TestPlanObservesTheRoot(t *testing.T) {
	in := chainInput()
	in.Windows = nil
	in.CPU, in.Duration = 300, 300
	in.Methods[root].Sites[0].Count *= 100 // 1000 roots a second call all others 100,000 times or more
	in.Methods[root].Sites[0].Targets[0].Count *= 100
	for i, atEdge := range []float64{root: 0, loop: 1, work: 3, leaf: 16} {
		in.Edges[i].AtEdge = atEdge
	}
	r := Estimate(in, Options{})
	p := newPlanner(in, r, budget())
	anchors := p.anchors()
	if len(anchors) == 0 || !slices.Contains(anchors[0].Codes, CodeID(root)) &&
		!slices.Contains(anchors[0].Codes, CodeID(loop)) {
		t.Errorf("rates %+v: planned %+v, want the root or the loop first", r.Rates, anchors)
	}
}

// TestPlanTriesNoMore: a code whose windows end full, however short they are, is not tried forever.
func TestPlanTriesNoMore(t *testing.T) {
	in := chainInput()
	in.Windows = nil
	for range 20 {
		r := Estimate(in, Options{})
		for _, q := range Plan(in, r, budget()) {
			w := Window{Codes: q.Codes, Length: q.Duration, Armed: 64 * in.HitCost, Full: true}
			for _, c := range q.Codes {
				w.Hits = append(w.Hits, Hit{Caller: VM, Callee: c, Count: float64(64 / len(q.Codes))})
			}
			in.Windows = append(in.Windows, w)
		}
	}
	for _, q := range Plan(in, Estimate(in, Options{}), budget()) {
		if !q.Check {
			t.Errorf("%+v is tried again", q)
		}
	}
}

func TestNoPlanWithoutBudget(t *testing.T) {
	in := chainInput()
	r := Estimate(in, Options{})
	for _, b := range []Budget{{}, {Windows: 3}, {Windows: 3, Hits: 100, Codes: 0, MaxHits: 9, MaxDuration: 1}} {
		if plan := Plan(in, r, b); len(plan) > 0 {
			t.Errorf("budget %+v: planned %+v", b, plan)
		}
	}
	if plan := Plan(in, &Result{}, budget()); plan != nil {
		t.Errorf("planned %+v for no result", plan)
	}
}

// TestPlanObservesOneOfMany: from codes whose rates follow from each other, Plan observes one, not
// all.
func TestPlanObservesOneOfMany(t *testing.T) {
	s := newSimulation(simulated{seed: 5, codes: 200, seconds: 5})
	p := newPlanner(s.in, Estimate(s.in, Options{}), budget())
	speak := p.representatives()
	able := 0
	for c := range p.rates {
		if p.prospect(CodeID(c)).variance < 10 {
			able++
		}
	}
	if len(speak) == 0 || len(speak) > able/2 {
		t.Errorf("%d of %d codes speak for the others", len(speak), able)
	}
}
