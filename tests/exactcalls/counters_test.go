package exactcalls

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/counters"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// In one run, the JVM's counters and its probes give the same number of calls for every edge
// between methods of the program, by call site, if a single thread makes the calls.
func TestCounters(t *testing.T) {
	for _, jdk := range jdks(t) {
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) {
			started := startGuest(t, jdk, append(strings.Fields(counters.Flags), "-XX:+"+exact.Flag,
				exact.NoC1Inlining)...)
			if _, err := started.Order("run 1 3000"); err != nil { // until all of it is compiled
				t.Fatal(err)
			}
			g := traceFrom(t, started, exact.Options{})
			first := g.counters(t)
			before, err := g.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			g.order(t, "run 1 150")
			if err := g.Stop(); err != nil {
				t.Fatal(err)
			}
			traced, err := g.Since(before)
			if err != nil {
				t.Fatal(err)
			}
			graph, notes := g.counted(t, first)
			got, want := edges(graph), edges(traced.Logical)
			t.Logf("%.0f calls are counted, %.0f traced; they have %.2f %% in common by caller and callee, %.2f %% "+
				"by callee\n%s",
				graph.Total(), traced.Logical.Total(), cct.Overlap(got, want),
				cct.Overlap(graph.Callees(), traced.Logical.Callees()),
				strings.Join(notes, "\n"))
			own := 0
			for _, e := range slices.Sorted(maps.Keys(want)) {
				// less than once a round: by methods that run once
				if !strings.HasPrefix(e, "calls.") || rare[lambdaNumber.ReplaceAllString(e, "$$")] || want[e] < 150 {
					continue
				}
				own++
				if got[e] != want[e] {
					t.Errorf("%.0f calls are counted of %s, %.0f traced", got[e], e, want[e])
				}
			}
			if own < 20 {
				t.Errorf("%d edges of the program", own)
			}
		})
	}
}

// rare are calls without a counter: the first two by code that is entered once and loops in the
// interpreter, the last one by the VM.
var rare = map[string]bool{
	"calls.Exact.lambda$runThreads$ calls.Exact.everything":  true,
	"calls.Exact$$Lambda.<init> java.lang.Object.<init>":     true,
	"calls.Exact.fail java.lang.NullPointerException.<init>": true,
}

// lambdaNumber is what javac numbers lambdas by.
var lambdaNumber = regexp.MustCompile(`\$\d+\b`)

// edges are calls by the names of both ends.
func edges(g *profile.Graph) cct.Weights[string] {
	w := cct.Weights[string]{}
	for e, n := range g.Edges() {
		w[e.Caller.Value().Function+" "+e.Callee.Value().Function] += n
	}
	return w
}

// counters reads the JVM's counters.
func (g guest) counters(t *testing.T) *counters.Reading {
	t.Helper()
	g.names.mu.Lock()
	defer g.names.mu.Unlock()
	if err := counters.Check(g.names.vm); err != nil {
		t.Fatal(err)
	}
	r, err := counters.Read(g.names.vm, g.epoch)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// counted is the call graph since a reading.
func (g guest) counted(t *testing.T, since *counters.Reading) (*profile.Graph, []string) {
	t.Helper()
	d := g.counters(t).Since(since)
	g.names.mu.Lock()
	defer g.names.mu.Unlock()
	book, err := (&counters.Book{}).Learn(g.names.vm, 1, d)
	if err != nil {
		t.Fatal(err)
	}
	marker := func(text string) symbol.Symbol { return symbolOf(vmruntime.Frame{Function: text}) }
	return book.Graph(d, 1<<18, symbolOf, marker), book.Notes(d)
}
