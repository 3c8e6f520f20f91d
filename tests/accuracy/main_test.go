package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
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
	trials := planShares([]jvm.JDK{old, recent}, whole)
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
	some := planShares([]jvm.JDK{old, recent}, short)
	names := make(map[string]bool)
	for _, trial := range some {
		names[trial.program.Name] = true
	}
	if len(some) >= len(trials) || len(names) != len(seen) {
		t.Errorf("the short form has %d trials of %d programs, the long one %d of %d", len(some), len(names), len(trials), len(seen))
	}

	one, err := parse([]string{"-run", "^Plain$"})
	if err != nil {
		t.Fatal(err)
	}
	for _, trial := range planShares([]jvm.JDK{old}, one) {
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

// Tables are only rewritten from all of their trials.
func TestEntire(t *testing.T) {
	jdks := []jvm.JDK{{Version: 17, Release: "17.0.1"}, {Version: 25, Release: "25"}}
	for pattern, want := range map[string]int{
		"":                              len(plan(jdks, options{run: regexp.MustCompile("")})),
		"^Plain":                        0,
		`^calls, .*, budget$`:           1,
		`^calls, .*, (\d+x\d+|budget)$`: 4, // both grids, and the adversary
		`^calls, .*, \d+x(1|64)$`:       0,
	} {
		o, err := parse([]string{"-run", pattern})
		if err != nil {
			t.Fatal(err)
		}
		if got := entire(plan(jdks, o), jdks); len(got) != want {
			t.Errorf("-run %q runs all of %d sections, want %d: %T", pattern, len(got), want, got)
		}
	}
}
