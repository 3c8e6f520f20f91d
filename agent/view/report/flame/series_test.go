package flame

import (
	"fmt"
	"slices"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

func always(time.Time) bool { return true }

// windowOf is window n of a test: two services, code that moves from the interpreter to a compiler,
// and a process of its own.
func windowOf(t *testing.T, n int64, contexts int) *Graph {
	t.Helper()
	p := newFlameProfile(append(timeColumns, &pprof.ValueType{Type: "calls", Unit: "count"})...)
	p.TimeNanos += n * p.DurationNanos
	p.Comments = []string{fmt.Sprintf("note %d", n%2)}
	kind := "ij"[n%2 : n%2+1]
	p.add(1, "shop", "http-1", []string{"j:run", kind + ":hot"}, 3, 30+n, 0)
	p.add(2, "db", "db", []string{"k:read"}, 4, 40, 0)
	p.add(100+n, "short", "main", []string{fmt.Sprintf("/bin/x:f%d", n)}, 1, 10, 0)
	p.add(1, "shop", "http-2", []string{"j:run", "j:maybe"}, 1, 10,
		0).Label[stored.LabelContext] = []string{profile.Ambiguous.String()}
	p.add(1, "shop", "", []string{"j:run", "j:hot"}, 0, 0, 500).Label[stored.LabelEngine] = []string{"page"}
	for i := range contexts {
		p.add(1, "shop", "http-1", []string{"j:run", fmt.Sprintf("j:m%d", i)}, 1, 10, 0)
	}
	return flamesOf(t, &p.Profile)[0]
}

// The sum of windows has what they have together, and nothing of other times, services and
// processes.
func TestSeries(t *testing.T) {
	s := NewSeries(3)
	if s.Sum(always, "", 0) != nil || !s.Start().IsZero() {
		t.Error("an empty series has a sum")
	}
	var starts []time.Time
	for n := range int64(5) {
		f := windowOf(t, n, 0)
		starts = append(starts, f.Start)
		s.Add(f.Cut(1000))
	}
	all := s.Sum(always, "", 0)
	if !s.Start().Equal(starts[2]) || !all.Start.Equal(starts[2]) || all.Duration != 30*time.Second ||
		len(all.bars) != 3 || !slices.Contains(all.Notes, "note 0") || !slices.Contains(all.Notes, "note 1") {
		t.Errorf("%v from %v, %v, notes %v", all, all.Start, all.Duration, all.Notes)
	}
	want := map[string]float64{
		"shop (pid 1);http-*;run;hot": 99, "shop (pid 1);http-*;run;maybe": 30, "db (pid 2);db;read": 120,
		"short (pid 102);main;f2": 10, "short (pid 103);main;f3": 10, "short (pid 104);main;f4": 10,
	}
	if got := paths(t, all); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for at, n := range all.nodes {
		if at > 0 {
			name := all.frames[all.tree.Node(cct.NodeID(at)).Key].name
			if name == "hot" && (n.tiers[tierInterpreted] != 32+34 || n.tiers[tierCompiled] != 33 || n.line != 7 ||
				n.count[0] != 9) || name == "maybe" && n.approx != 30 {
				t.Errorf("%s: %+v", name, n)
			}
		}
	}
	calls := 0.0
	for _, n := range all.calls {
		calls += n
	}
	if calls != 1500 || len(all.Services()) != 5 {
		t.Errorf("%v calls, services %v", calls, all.Services())
	}
	second := s.Sum(func(start time.Time) bool { return start.Equal(starts[3]) }, "", 0)
	if got := paths(t, second); len(got) != 4 || got["short (pid 103);main;f3"] != 10 ||
		second.Duration != 10*time.Second {
		t.Errorf("of one window: %v", got)
	}
	if got := paths(t, s.Sum(always, "db", 0)); len(got) != 1 || got["db (pid 2);db;read"] != 120 {
		t.Errorf("of a service: %v", got)
	}
	if one := s.Sum(always, "short", 104); one.Total() != 10 || len(one.bars) != 3 || len(one.calls) != 0 {
		t.Errorf("of a process: %v", one)
	}
	if none := s.Sum(always, "nobody", 0); none.Total() != 0 || len(none.nodes) != 1 ||
		none.Duration != 30*time.Second {
		t.Errorf("of nobody: %v", none)
	}
	if s.Sum(func(time.Time) bool { return false }, "", 0) != nil {
		t.Error("no window has a sum")
	}
	var each []time.Time
	s.Each(func(f *Graph) { each = append(each, f.Start) })
	if fmt.Sprint(each) != fmt.Sprint(starts[2:]) {
		t.Errorf("windows from %v", each)
	}
}

// A context that no window has any more is forgotten, and the others stay as they are.
func TestSeriesForgets(t *testing.T) {
	s := NewSeries(2)
	const contexts = 1000
	for n := range int64(20) {
		f := windowOf(t, n, 0)
		process := f.frame(flameFrame{name: fmt.Sprint("job ", n), kind: kindProcess})
		for i := range contexts {
			f.nodes[f.child(f.child(0, process), f.frame(flameFrame{name: fmt.Sprint("f", i)}))].value[0]++
		}
		s.Add(f)
		if s.tree.Len() > leastSeriesNodes+contexts+100 {
			t.Fatalf("%d nodes after %d windows", s.tree.Len(), n+1)
		}
	}
	if got, want := s.Sum(always, "", 0).Total(), 2*(contexts+40+10+10)+48.0+49; got != want {
		t.Errorf("total %v, want %v", got, want)
	}
}

// What a request costs does not grow with what windows have in common: contexts are found when a
// window is added, and not again.
func TestSeriesWork(t *testing.T) {
	const windows = 30
	allocations := func(contexts int) float64 {
		s := NewSeries(windows)
		for n := range int64(windows) {
			s.Add(windowOf(t, n, contexts))
		}
		return testing.AllocsPerRun(5, func() { s.Sum(always, "", 0) })
	}
	const chunks = 3000 / 500 // at least, by which the tree of the sum grows: see package cct
	if few, many := allocations(1), allocations(3000); many > few+windows+chunks {
		t.Errorf("a sum of windows of 1 context makes %v allocations, of 3000 contexts %v", few, many)
	}
}
