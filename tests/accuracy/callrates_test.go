package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
)

// cells counts what a section would record.
func cells(s *rates) int { return len(s.programs) * len(s.bursts) }

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
		o, err := parse(test.args)
		if err != nil {
			t.Fatal(err)
		}
		if vm, php := cells(planVMRates(o)), cells(planPHPRates(o)); vm != test.vm || php != test.php {
			t.Errorf("%q: %d and %d, want %d and %d", test.args, vm, php, test.vm, test.php)
		}
	}
}

// known is a guest whose iterations took 10% longer with the agent, and every second of whose calls was missed.
func known(name string) *paced {
	truth, found := &callGraph{}, &callGraph{}
	for i := range 2 {
		truth.Add(guests.VMEdge{Site: i}, 1)
	}
	found.Add(guests.VMEdge{Site: 0}, 1)
	g := &paced{name: name, rests: []float64{100, 104, 100, 100}}
	for _, ns := range []float64{112.2, 112.2, 110} {
		g.recorded = append(g.recorded, recorded{iteration: ns, truth: truth, found: found, calls: 1})
	}
	return g
}

func TestRatesTables(t *testing.T) {
	s := &rates{
		table: "rates", programs: []string{"a", "b"}, guests: []*paced{known("a"), known("b")},
		bursts: []profile.Burst{{Stride: 1, Samples: 1}, {Stride: 3, Samples: 1}, {Stride: 7, Samples: 32}},
	}
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
	s := &budget{results: []budgetResult{
		{budgetTrial: budgetTrial{"flat", "page"}, rate: "7x32 at 100 Hz", overhead: 0.009, said: 0.01, overlap: 96, ideal: 98, calls: 10},
		{budgetTrial: budgetTrial{"skewed", "page"}, overhead: 0.021, overlap: 92, ideal: 99, calls: 30},
		{budgetTrial: budgetTrial{parser, "usdt"}, overhead: -0.01, overlap: 80},
	}}
	var verdicts []string
	rows := s.tables()[0].Rows
	for _, row := range rows {
		verdicts = append(verdicts, row[len(row)-1])
	}
	if got, want := strings.Join(verdicts, "; "), "ok; overhead MISSED, overlap MISSED; ok; overhead MISSED, overlap MISSED"; got != want {
		t.Errorf("verdicts %s, want %s", got, want)
	}
	if mean := strings.Join(rows[3], " "); !strings.HasPrefix(mean, "mean of the reference guest  +1.50 +0.00 0.50 20 94.0 98.5") {
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
		s := &adversary{results: []adversaryResult{test.r}}
		if s.ok() != test.want {
			t.Errorf("%+v is %v", test.r, s.ok())
		}
	}
	if firstCalls(known("a").recorded[0].truth) == firstCalls(known("a").recorded[0].truth) {
		t.Error("a graph without the two calls has a share of them")
	}
}
