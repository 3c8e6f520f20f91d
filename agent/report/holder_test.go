package report_test

import (
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// contention is a profile of CPU time by method, and one of waits for a lock by method, in nanoseconds.
func contention(t *testing.T, cpu map[string]uint64, waits map[string]float64, events uint64) (files []*pprof.Profile) {
	t.Helper()
	frame := func(name string) symbolize.Symbol {
		return symbolize.Intern(symbolize.Frame{Function: name, Mapping: sinktest.Jit})
	}
	run, e := frame("Shop.run"), &profile.Events{Kind: profile.Locks, Tree: new(cct.Tree[symbolize.Symbol]), Basis: []string{"exact"}}
	tree := new(cct.Tree[symbolize.Symbol])
	for name, samples := range cpu {
		tree.Add([]symbolize.Symbol{frame("Shop.mix"), frame(name), run}, samples)
	}
	for name, delay := range waits {
		e.Rows = append(e.Rows, profile.EventRow{Context: e.Tree.Add([]symbolize.Symbol{frame(name), run}, 1), TID: 1, Events: events,
			EventLabels: profile.EventLabels{Class: "Ledger", What: "block"}, Values: [profile.MaxEventValues]float64{float64(events), float64(events), delay}})
	}
	p := &profile.Profile{Period: 1e7, Duration: 1e10, Event: "cpu-clock", Processes: []*profile.Process{{PID: 1, Comm: "java", Runtime: "hotspot",
		Threads: []*profile.Thread{{TID: 1, Tree: tree}}, Events: []*profile.Events{e}}}}
	for _, content := range []sink.Content{sink.Time, sink.OfEvents(profile.Locks)} {
		stored, err := sink.Pprof(p, content)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, stored)
	}
	return files
}

// The method that acquires a lock, waits little for it and computes most holds it.
func TestHolder(t *testing.T) {
	waits := map[string]float64{"Ledger.add": 95e6, "Ledger.close": 5e6}
	const waiting = "Ledger: waited for in Ledger.add (95.0% of its delay)"
	for _, tt := range []struct {
		cpu    map[string]uint64
		waits  map[string]float64
		events uint64
		want   string // "" for no sentence
	}{
		{map[string]uint64{"Ledger.close": 30, "Ledger.add": 5, "Shop.price": 65}, waits, 50, waiting + ", probably held by Ledger.close (30.0% of the CPU time)"},
		{map[string]uint64{"Ledger.close": 5, "Ledger.add": 30, "Shop.price": 65}, waits, 50, waiting + ", probably held there as well (30.0% of the CPU time)"},
		{map[string]uint64{"Ledger.close": 1, "Shop.price": 99}, waits, 50, waiting + "; the other methods seen to acquire it use no CPU time: the holder waits for something else, or never for this lock"},
		{map[string]uint64{"Ledger.close": 60, "Shop.price": 40}, map[string]float64{"Ledger.add": 95e6}, 50,
			"Ledger: waited for in Ledger.add (100.0% of its delay); no other method was seen to acquire it, so the holder is not known"},
		{map[string]uint64{"Ledger.close": 3, "Shop.price": 7}, waits, 50, ""},  // too few samples
		{map[string]uint64{"Ledger.close": 30, "Shop.price": 65}, waits, 2, ""}, // too few waits
		{map[string]uint64{"Ledger.close": 30}, nil, 0, ""},
	} {
		got := summaryOf(t, &report.SummaryOptions{Width: 500, Next: []string{"next"}}, contention(t, tt.cpu, tt.waits, tt.events)...)
		if tt.want != "" && !strings.Contains(got, "\n\n"+tt.want+"\n\nnext\n") || tt.want == "" && strings.Contains(got, "waited for") {
			t.Errorf("%v: no %q in\n%s", tt.cpu, tt.want, got)
		}
	}
}
