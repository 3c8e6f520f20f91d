package history

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A window with too many stacks keeps its sums.
func TestRareStacks(t *testing.T) {
	p := varied(rand.New(rand.NewPCG(3, 4)), 10, 300)
	m := newMerger(newNames(), new(spare))
	m.add(m.names.window(p, new(arena)), p.Start)
	got := m.names.profile(m.finish(500, new(arena)))
	if n, want := totalsOf(got), totalsOf(p); n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
	contexts := 0
	for _, proc := range got.Processes {
		for _, th := range proc.Threads {
			contexts += th.Tree.Len()
		}
		for _, e := range proc.Events {
			for _, row := range e.Rows {
				if int(row.Context) > e.Tree.Len() {
					t.Fatalf("a row at context %d of %d", row.Context, e.Tree.Len())
				}
			}
		}
	}
	if contexts > 1500 { // each that is kept may have a rare one below it, and each thread one below its root
		t.Errorf("%d contexts", contexts)
	}
}

// Windows with ever other stacks are added up in bounded memory.
func TestMergingIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, and has one thread")
	}
	var (
		m    = newMerger(newNames(), new(spare))
		want uint64
	)
	const each = maxContexts
	for window := range 2 * maxMerging / maxContexts {
		tree, rows := new(cct.Tree[symbol.Symbol]), new(profile.Events)
		rows.Kind, rows.Tree = profile.Locks, new(cct.Tree[symbol.Symbol])
		for i := range each {
			s := symbol.Intern(symbol.Frame{Function: "f", Line: window*each + i, Kind: symbol.KindNative})
			tree.Add([]symbol.Symbol{s}, 1)
			rows.Rows = append(rows.Rows, profile.EventRow{Context: rows.Tree.Add([]symbol.Symbol{s}, 1), Events: 1})
		}
		want += each
		p := &profile.Profile{Start: began, Duration: time.Second, Processes: []*profile.Process{{PID: 1, Comm: "a",
			Threads: []*profile.Thread{{Name: "t", Tree: tree}}, Events: []*profile.Events{rows}}}}
		m.add(m.names.window(p, new(arena)), began.Add(time.Second))
		held := m.processes[0]
		if n := held.threads[0].tree.Len(); n > maxMerging {
			t.Fatalf("%d contexts after %d windows", n, window+1)
		}
		if e := held.events[profile.Locks]; e.tree.Len() > maxMerging || len(e.rows) > maxMerging {
			t.Fatalf("%d contexts and %d rows after %d windows", e.tree.Len(), len(e.rows), window+1)
		}
	}
	if got := totalsOf(m.names.profile(m.finish(maxContexts, new(arena)))); got.samples != want || got.events != want {
		t.Errorf("%d samples and %d events, want %d", got.samples, got.events, want)
	}
}

// Rows of one context that differ by nothing are added up, however many others the context has.
func TestRowsOfAContext(t *testing.T) {
	m := newMerger(newNames(), new(spare))
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
		m.add(m.names.window(&profile.Profile{Processes: []*profile.Process{{PID: 1, Events: []*profile.Events{e}}}},
			new(arena)), began)
	}
	p := m.names.profile(m.finish(maxContexts, new(arena)))
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
