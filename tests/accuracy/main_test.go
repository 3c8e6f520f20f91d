package main

import (
	"bytes"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-run", "("}, {"-nonsense"}, {"-update", "-short"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestPlan(t *testing.T) {
	old, recent := jvm.JDK{Version: 17, Release: "17.0.1"}, jvm.JDK{Version: 25, Release: "25"}
	whole, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	trials := harness.Chosen(shareTrials([]jvm.JDK{old, recent}, whole.Short), whole.choice())
	seen := make(map[string]bool)
	for _, trial := range trials {
		seen[trial.program.Name] = true
		if trial.jdk.Version < trial.program.MinJDK {
			t.Errorf("%s on JDK %d", trial.program.Name, trial.jdk.Version)
		}
	}
	if len(seen) != len(guests.Programs()) {
		t.Errorf("%d programs of %d are tried", len(seen), len(guests.Programs()))
	}

	short, err := parse([]string{"-short"})
	if err != nil {
		t.Fatal(err)
	}
	some := harness.Chosen(shareTrials([]jvm.JDK{old, recent}, short.Short), short.choice())
	names := make(map[string]bool)
	for _, trial := range some {
		names[trial.program.Name] = true
	}
	if len(some) >= len(trials) || len(names) != len(seen) {
		t.Errorf("the short form has %d trials of %d programs, the long one %d of %d", len(some), len(names),
			len(trials), len(seen))
	}

	one, err := parse([]string{"-run", "^Plain$"})
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range harness.Chosen(shareTrials([]jvm.JDK{old}, one.Short), one.choice()) {
		if trial.program.Name != "Plain" {
			t.Errorf("-run Plain tries %s", trial.program.Name)
		}
	}
}

func TestSharesTable(t *testing.T) {
	flavours := guests.Flavours()
	table := sharesTable([]result{{
		trial: trial{program: guests.Program{Name: "Plain"}, flavour: flavours[1], jdk: jvm.JDK{Release: "17.0.1"}},
		verdicts: []verdict{
			{what: "far from its tolerance", truth: 0.5, measured: 0.51, tolerance: 0.1},
			{what: "beyond", truth: 1, measured: 0.98, tolerance: 0.01},
		},
	}})
	var text bytes.Buffer
	if err := table.Print(&text); err != nil {
		t.Fatal(err)
	}
	row := table.Rows[0]
	if row[0] != "Plain" || row[2] != "" || row[3] != "-2.0 of ±1.0 MISSED" {
		t.Errorf("got\n%s", text.String())
	}
}

// Tables are only rewritten from complete sets of trials.
func TestWhole(t *testing.T) {
	all := sections([]jvm.JDK{{Version: 17, Release: "17.0.1"}, {Version: 25, Release: "25"}})
	for pattern, want := range map[string]int{
		"":                              len(all),
		"^Plain":                        0,
		`^calls, .*, budget$`:           1,
		`^calls, .*, (\d+x\d+|budget)$`: 4, // both grids, and the adversary
		`^calls, .*, \d+x(1|64)$`:       0,
	} {
		o, err := parse([]string{"-run", pattern})
		if err != nil {
			t.Fatal(err)
		}
		var whole []string
		for _, s := range all {
			if s.Plan(o.choice()).Whole {
				whole = append(whole, s.Name)
			}
		}
		if len(whole) != want {
			t.Errorf("-run %q runs all of %q, want %d", pattern, whole, want)
		}
	}
}

// The page has a place for every table.
func TestMarkers(t *testing.T) {
	if err := harness.CheckMarkers("../../"+docs, sections([]jvm.JDK{{Version: 17, Release: "17.0.1"}})); err != nil {
		t.Error(err)
	}
}

// trialsOf is how many trials of a section the arguments select.
func trialsOf(t *testing.T, name string, jdks []jvm.JDK, args ...string) int {
	t.Helper()
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sections(jdks) {
		if s.Name == name {
			return s.Plan(o.choice()).Trials
		}
	}
	t.Fatalf("no section %q", name)
	return 0
}
