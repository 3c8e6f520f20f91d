package main

import (
	"math"
	"math/rand/v2"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
)

func TestMeanDeviation(t *testing.T) {
	for _, test := range []struct{ n, p float64 }{{1, 0.5}, {1, 0.1}, {5, 0.2}, {10, 0.35}, {40, 0.001}, {200, 0.999},
		{64, 0.5}} {
		var want float64
		for k := 0.0; k <= test.n; k++ {
			want += math.Exp(logChoose(test.n, k)+k*math.Log(test.p)+
				(test.n-k)*math.Log1p(-test.p)) * math.Abs(k-test.n*test.p)
		}
		if got := meanDeviation(test.n, test.p); math.Abs(got-want) > 1e-9*max(want, 1) {
			t.Errorf("n=%v p=%v: %v, want %v", test.n, test.p, got, want)
		}
	}
	for _, p := range []float64{0, 1, 1 - 1e-17} {
		if got := meanDeviation(10, p); got != 0 {
			t.Errorf("p=%v: %v", p, got)
		}
	}
}

// The formula agrees with drawing.
func TestIdealOverlap(t *testing.T) {
	truth := &callGraph{}
	var edges []guests.VMEdge
	var upTo []float64
	for i := range 50 {
		e := guests.VMEdge{Caller: "main", Site: i, Callee: "f"}
		truth.Add(e, float64(1000/(i+1)))
		edges, upTo = append(edges, e), append(upTo, truth.Total())
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 10, 300} {
		const rounds = 2000
		var mean float64
		for range rounds {
			drawn := &callGraph{}
			for range n {
				at, i := random.Float64()*truth.Total(), 0
				for upTo[i] <= at {
					i++
				}
				drawn.Add(edges[i], 1)
			}
			mean += cct.Overlap(drawn, truth) / rounds
		}
		// The overlap of one round differs from its mean by at most 5: five standard deviations of
		// 2000 rounds.
		if got := idealOverlap(truth, float64(n)); math.Abs(got-mean) > 5*5/math.Sqrt(rounds) {
			t.Errorf("%d calls: %.2f, drawing gives %.2f", n, got, mean)
		}
	}
	if got := idealOverlap(truth, 0); got != 0 {
		t.Errorf("without calls: %v", got)
	}
}

func TestRecordedCalls(t *testing.T) {
	location := func(name string, line int64) *pprof.Location {
		return &pprof.Location{Line: []pprof.Line{{Function: &pprof.Function{Name: name}, Line: line}}}
	}
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "calls", Unit: "count"}}}
	for pid, calls := range map[int64]int64{1: 3, 2: 5} {
		p.Sample = append(p.Sample, &pprof.Sample{
			Location: []*pprof.Location{location("f", 0), location("main", 7)},
			Value:    []int64{calls}, NumLabel: map[string][]int64{"pid": {pid}},
		})
	}
	got, err := recordedCalls(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	if w := got.Weight(guests.VMEdge{Caller: "main", Site: 7, Callee: "f"}); w != 5 || got.Len() != 1 {
		t.Errorf("%v calls on %d edges", w, got.Len())
	}
	if got, err := recordedCalls(p, 3); err != nil || got.Len() != 0 {
		t.Errorf("%d edges of a process that was not recorded, %v", got.Len(), err)
	}
}
