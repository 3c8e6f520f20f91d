package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

func TestTables(t *testing.T) {
	of := func(release string, version int, name string, states map[string]state) result {
		r := result{cell: cell{jdk: jvm.JDK{Version: version, Release: release}, setup: setup{name: name}}}
		for _, feature := range features {
			r.verdicts = append(r.verdicts, verdict{feature: feature, state: states[feature], found: name})
		}
		return r
	}
	failed := result{cell: cell{jdk: jvm.JDK{Version: 21, Release: "21"}, setup: setup{name: "Serial"}},
		err: errors.New("broken\ndetails")}
	results := []result{
		of("21", 21, plain, map[string]state{monitors: silent}),
		of("11", 11, plain, nil),
		of("11", 11, "Serial", map[string]state{allocated: wrong}),
		{cell: cell{jdk: jvm.JDK{Version: 21, Release: "21"}, setup: setup{name: "CMS"}}, absent: "Unrecognized"},
		failed,
	}
	if got := releases(results); !slices.Equal(got, []string{"11", "21"}) {
		t.Errorf("JDKs %q", got)
	}
	find := func(table [][]string, words ...string) bool {
		return slices.ContainsFunc(table, func(row []string) bool { return slices.Equal(row, words) })
	}
	table := featureTable(results)
	if !find(table.Rows, shares, "yes", "yes") || !find(table.Rows, allocated, "partly: 1 of 2 setups (WRONG in 1)",
		"yes") ||
		!find(table.Rows, monitors, "yes", "no: 0 of 1 setups") {
		t.Errorf("features:\n%s", table.Markdown())
	}
	table = setupTable(results)
	if !find(table.Rows, plain, "all", "8 of 9") || !find(table.Rows, "Serial", "8 of 9", "error") {
		t.Errorf("setups:\n%s", table.Markdown())
	}
	table = gapTable(results, features)
	if len(table.Rows) != 3 || !find(table.Rows, allocated, "11", "Serial", "WRONG: Serial") ||
		!find(table.Rows, monitors, "21", "all", "missing, and said: "+plain) ||
		!find(table.Rows, "all", "21", "Serial", "broken") {
		t.Errorf("gaps:\n%s", table.Markdown())
	}
	if results[0].wrong() || !results[2].wrong() || !failed.wrong() {
		t.Error("wrong profiles and errors are failures, and no others")
	}
}

// One page of the documentation has a place for each table.
func TestMarkers(t *testing.T) {
	for _, table := range tables(nil, false) {
		if _, err := report.Page("../../"+docs, table.Marker); err != nil {
			t.Error(err)
		}
	}
}
