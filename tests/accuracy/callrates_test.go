package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestPlanRates(t *testing.T) {
	for _, test := range []struct {
		args    []string
		vm, php int
	}{
		{nil, 7 * 30, 30},
		{[]string{"-short"}, 2, 2},
		{[]string{"-run", "^calls, flat, "}, 30, 0},
		{[]string{"-run", "^calls, .*, 7x32$"}, 7, 1},
		{[]string{"-run", "^calls, PHP-Parser, (1x1|7x32)$"}, 0, 2},
		{[]string{"-run", "Plain"}, 0, 0},
	} {
		jdks := []jvm.JDK{{Version: 17, Release: "17.0.1"}}
		if vm, php := trialsOf(t, "rates-vm", jdks, test.args...), trialsOf(t, "rates-php", jdks,
			test.args...); vm != test.vm || php != test.php {
			t.Errorf("%q: %d and %d, want %d and %d", test.args, vm, php, test.vm, test.php)
		}
	}
}

// known are guests whose iterations took 10% longer with the agent, and half of whose calls were
// missed.
func known(names ...string) (courses []course) {
	truth, found := &callGraph{}, &callGraph{}
	for i := range 2 {
		truth.Add(guests.VMEdge{Site: i}, 1)
	}
	found.Add(guests.VMEdge{Site: 0}, 1)
	all := func(r recorded) []recorded { return slices.Repeat([]recorded{r}, len(names)) }
	turns := &pacedTurns{}
	for _, ns := range []float64{100, 104, 100, 100} {
		turns.Off = append(turns.Off, all(recorded{iteration: ns}))
	}
	bursts := []profile.Burst{{Stride: 1, Samples: 1}, {Stride: 3, Samples: 1}, {Stride: 7, Samples: 32}}
	for i, ns := range []float64{112.2, 112.2, 110} {
		turns.On = append(turns.On, harness.Turn[profile.Rate, []recorded]{
			Kind: profile.Rate{Burst: bursts[i]}, Sample: all(recorded{iteration: ns, truth: truth, found: found,
				calls: 1}),
		})
	}
	for i, name := range names {
		courses = append(courses, course{name, i, turns})
	}
	return courses
}

func TestRatesTables(t *testing.T) {
	s := &rates{"rates", known("a", "b")}
	var text bytes.Buffer
	for _, table := range s.tables() {
		if err := table.Print(&text); err != nil {
			t.Fatal(err)
		}
	}
	// Drawing one of two edges gives half of the graph. Controls are +4.0% and -2.0%.
	const want = `SAMPLES  STRIDE 1         STRIDE 3         STRIDE 7         STRIDE 15  STRIDE 31
1        +10.0 / 50 (50)  +10.0 / 50 (50)                              
32                                         +10.0 / 50 (50)             
control  +1.0 ± 4.2                                                    
program  edges  1x1              7x32             31x128
a        2      +10.0 / 50 (50)  +10.0 / 50 (50)  
b        2      +10.0 / 50 (50)  +10.0 / 50 (50)  
`
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestBudgetTable(t *testing.T) {
	rows := budgetTable([]budgetResult{
		{budgetTrial: budgetTrial{"flat", "page"}, rate: "7x32 at 100 Hz", overhead: 0.009, said: 0.01, overlap: 96,
			ideal: 98, calls: 10},
		{budgetTrial: budgetTrial{"skewed", "page"}, overhead: 0.021, overlap: 92, ideal: 99, calls: 30},
		{budgetTrial: budgetTrial{parser, "usdt"}, overhead: -0.01, overlap: 80},
	}).Rows
	var verdicts []string
	for _, row := range rows {
		verdicts = append(verdicts, row[len(row)-1])
	}
	if got, want := strings.Join(verdicts,
		"; "), "ok; overhead MISSED, overlap MISSED; ok; overhead MISSED, overlap MISSED"; got != want {
		t.Errorf("verdicts %s, want %s", got, want)
	}
	if mean := strings.Join(rows[3], " "); !strings.HasPrefix(mean,
		"mean of the reference guest  +1.50 +0.00 0.50 20 94.0 98.5") {
		t.Errorf("mean is %q", mean)
	}
}

func TestAdversary(t *testing.T) {
	timer := adversaryTrial{profile.Rate{}, true}
	for _, test := range []struct {
		r    adversaryResult
		want bool
	}{
		{adversaryResult{adversaryTrial: timer, measured: 0.97, truth: 0.5, calls: 100}, true},
		{adversaryResult{adversaryTrial: timer, measured: 0.6, truth: 0.5, calls: 100}, false},
		{adversaryResult{measured: 0.53, truth: 0.5, calls: minDraws}, true},
		{adversaryResult{measured: 0.56, truth: 0.5, calls: minDraws}, false},
		{adversaryResult{measured: 0.5, truth: 0.5, calls: 10}, false},
		{adversaryResult{measured: firstCalls(&callGraph{}), truth: 0.5, calls: minDraws}, false},
	} {
		if test.r.ok() != test.want {
			t.Errorf("%+v is %v", test.r, test.r.ok())
		}
	}
	if firstCalls(known("a")[0].recorded(0).truth) == firstCalls(known("a")[0].recorded(0).truth) {
		t.Error("a graph without the two calls has a share of them")
	}
}
