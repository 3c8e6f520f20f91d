package main

import (
	"math"
	"testing"

	pprof "github.com/google/pprof/profile"
)

// A run of windows with one method each, named by letters; a dot is a window without samples of the
// program.
func runOf(methods string) *pprof.Profile {
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
		PeriodType: &pprof.ValueType{}, Period: 1}
	locations := map[rune]*pprof.Location{}
	for i, m := range methods {
		if m == '.' {
			continue
		}
		if locations[m] == nil {
			id := uint64(len(locations) + 1)
			f := &pprof.Function{ID: id, Name: string(m), SystemName: string(m)}
			locations[m] = &pprof.Location{ID: id, Line: []pprof.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, locations[m])
		}
		for _, pid := range []int64{1, 2} { // process 2 is another one, which always works
			p.Sample = append(p.Sample, &pprof.Sample{
				Location: []*pprof.Location{locations[m]}, Value: []int64{200},
				NumLabel: map[string][]int64{"pid": {pid}, "window": {int64(i + 1)}},
			})
		}
	}
	return p
}

// Seconds of two runs correspond, whenever in a recording they begin.
func TestCorrespondingSeconds(t *testing.T) {
	first, err := newProfiledRun(runOf("...aabbbcccccddeeeffffg"), 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newProfiledRun(runOf(".aabbbcccccddeeeffffgx"), 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if first.begin != 4 || second.begin != 2 || first.seconds != 4 || second.seconds != 4 {
		t.Fatalf("windows %d and %d begin %d and %d seconds", first.begin, second.begin, first.seconds, second.seconds)
	}
	merged, err := pprof.Merge([]*pprof.Profile{first.number(1), second.number(2)})
	if err != nil {
		t.Fatal(err)
	}
	seconds := secondsOf(merged)
	mean := func(n int, other func(int) int64) likeness {
		alike, err := meanLikeness(merged, n, func(i int) (a, b []*pprof.Sample) {
			return seconds[secondOf(1, i)],
				seconds[other(i)]
		})
		if err != nil {
			t.Fatal(err)
		}
		return alike[hotMethods]
	}
	if l := mean(4, func(i int) int64 { return secondOf(2, i) }); math.Abs(l.overlap-100) > 0.01 {
		t.Errorf("corresponding seconds: %+v", l)
	}
	if l := mean(3, func(i int) int64 { return secondOf(1, i+1) }); l.overlap > 1 {
		t.Errorf("consecutive seconds: %+v", l)
	}
	if _, err := newProfiledRun(runOf("a"), 1, 1000); err == nil {
		t.Error("a run of one window was accepted")
	}
}
