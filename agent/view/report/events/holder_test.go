package events_test

import (
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A heldWait is the delay of 25 waits for a lock, and who was seen to have it.
type heldWait struct {
	class, site, method, thread string
	delay                       float64
}

// contention is a profile of waits for locks.
func contention(t *testing.T, waits []heldWait) *pprof.Profile {
	t.Helper()
	frame := func(name string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, Mapping: sinktest.Jit})
	}
	e := &profile.Events{Kind: profile.Locks, Tree: new(cct.Tree[symbol.Symbol]), Basis: []string{"exact"}}
	for _, w := range waits {
		e.Rows = append(e.Rows, profile.EventRow{Context: e.Tree.Add([]symbol.Symbol{frame(w.site), frame("Shop.run")},
			1), TID: 1, Events: 25,
			EventLabels: profile.EventLabels{Class: w.class, What: "block", Field: w.method, Value: w.thread},
			Values:      [profile.MaxEventValues]float64{25, 25, w.delay}})
	}
	p := &profile.Profile{Period: 1e7, Duration: 1e10, Event: "cpu-clock",
		Processes: []*profile.Process{{PID: 1, Comm: "java", Runtime: "hotspot",
			Events: []*profile.Events{e}}}}
	stored, err := sink.Pprof(p, sink.OfEvents(profile.Locks))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// The sentence in the summary names who was seen to have the lock, and nobody without that.
func TestHolder(t *testing.T) {
	const waited = "Ledger: waited for in Ledger.add (95.0% of its delay); held by "
	seldom := heldWait{"Ledger", "Ledger.close", "Ledger.add", "clerk", 5e6}
	for name, tt := range map[string]struct {
		waits []heldWait
		want  string // "" for no sentence
	}{
		"one": {[]heldWait{{"Ledger", "Ledger.add", "Ledger.close", "boss", 95e6}, seldom}, waited +
			"Ledger.close, boss (seen for 100.0% of that)"},
		"of some time": {[]heldWait{{"Ledger", "Ledger.add", "Ledger.close", "boss", 38e6},
			{"Ledger", "Ledger.add", "", "", 57e6}, seldom}, waited + "Ledger.close, boss (seen for 40.0% of that)"},
		"two": {[]heldWait{{"Ledger", "Ledger.add", "Ledger.close", "boss", 57e6},
			{"Ledger", "Ledger.add", "Ledger.add", "clerk-*", 38e6}, seldom},
			waited + "Ledger.close, boss (seen for 60.0% of that), and by Ledger.add, clerk-* (40.0%)"},
		"another lock of the class": {[]heldWait{{"Ledger", "Ledger.add", "", "", 95e6},
			{"Ledger", "Ledger.close", "Ledger.sum", "boss", 5e6}}, ""},
		"nobody": {[]heldWait{{"Ledger", "Ledger.add", "", "", 95e6}}, ""},
		"hardly ever": {[]heldWait{{"Ledger", "Ledger.add", "", "", 95e6},
			{"Ledger", "Ledger.add", "Ledger.close", "boss", 5e6}}, ""},
		"no waits": {nil, ""},
	} {
		var out strings.Builder
		err := report.Summary(&out, []*pprof.Profile{contention(t, tt.waits)},
			&report.SummaryOptions{Width: 500, Next: []string{"next"}})
		if err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if tt.want != "" && !strings.Contains(got, "\n\n"+tt.want+"\n\nnext\n") || tt.want == "" &&
			strings.Contains(got, "waited for") {
			t.Errorf("%s: no %q in\n%s", name, tt.want, got)
		}
	}
}
