package digest

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Windows with ever other stacks are added up in bounded memory.
func TestMergingIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, and has one thread")
	}
	var (
		m    = NewMerger(NewNames(nil), nil)
		want uint64
	)
	const each = MaxContexts
	for window := range 2 * maxMerging / MaxContexts {
		tree, rows := new(cct.Tree[symbol.Symbol]), new(profile.Events)
		rows.Kind, rows.Tree = profile.Locks, new(cct.Tree[symbol.Symbol])
		for i := range each {
			s := symbol.Intern(symbol.Frame{Function: "f", Line: window*each + i, Kind: symbol.KindNative})
			tree.Add([]symbol.Symbol{s}, 1)
			rows.Rows = append(rows.Rows, profile.EventRow{Context: rows.Tree.Add([]symbol.Symbol{s}, 1), Events: 1})
		}
		want += each
		p := &profile.Profile{Start: time.Unix(1000, 0), Duration: time.Second, Processes: []*profile.Process{{PID: 1,
			Comm: "a", Threads: []*profile.Thread{{Name: "t", Tree: tree}}, Events: []*profile.Events{rows}}}}
		m.AddProfile(p)
		held := m.processes[0]
		if n := held.threads[0].tree.Len(); n > maxMerging {
			t.Fatalf("%d contexts after %d windows", n, window+1)
		}
		if e := held.events[profile.Locks]; e.tree.Len() > maxMerging || len(e.Rows) > maxMerging {
			t.Fatalf("%d contexts and %d rows after %d windows", e.tree.Len(), len(e.Rows), window+1)
		}
	}
	var samples, events uint64
	p := m.Profile(MaxContexts).Processes[0]
	for _, th := range p.Threads {
		samples += th.Tree.Total()
	}
	for _, row := range p.Events[0].Rows {
		events += row.Events
	}
	if samples != want || events != want {
		t.Errorf("%d samples and %d events, want %d", samples, events, want)
	}
}

// Rows of one context that differ by nothing are added up, however many others the context has.
func TestRowsOfAContext(t *testing.T) {
	m := NewMerger(NewNames(nil), nil)
	const different = 3 * nearRows
	for range 3 {
		e := &profile.Events{Kind: profile.Locks, Tree: new(cct.Tree[symbol.Symbol])}
		for _, at := range []cct.NodeID{cct.Root,
			e.Tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "f"})}, 1)} {
			for i := range 2 * different {
				labels := profile.EventLabels{Class: "C", Offset: int32(i % different)}
				e.Rows = append(e.Rows, profile.EventRow{Context: at, Thread: "pool-1", EventLabels: labels,
					Events: uint64(i % different), Values: [3]float64{1}})
			}
		}
		m.AddProfile(&profile.Profile{Processes: []*profile.Process{{PID: 1, Events: []*profile.Events{e}}}})
	}
	p := m.Profile(MaxContexts)
	rows := p.Processes[0].Events[0].Rows
	if len(rows) != 2*different {
		t.Fatalf("%d rows", len(rows))
	}
	for i, r := range rows {
		if want := uint64(i % different); int(r.Context) != i/different || r.Offset != int32(want) ||
			r.Events != 6*want || r.Values[0] != 6 || r.Thread != "pool-*" {
			t.Errorf("row %d: %+v", i, r)
		}
	}
}
