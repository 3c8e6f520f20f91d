package history

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// began is when the histories of tests begin.
var began = time.Date(2026, 11, 25, 3, 0, 0, 0, time.UTC)

// A rig is a store with a clock that tests turn.
type rig struct {
	*Store
	path string
	now  time.Time
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{path: filepath.Join(t.TempDir(), "history"), now: began}
	o.Now = func() time.Time { return r.now }
	r.reopen(t, o)
	return r
}

// reopen opens the directory as a new process does.
func (r *rig) reopen(t *testing.T, o Options) {
	t.Helper()
	o.Now = func() time.Time { return r.now }
	s, err := Open(r.path, &o)
	if err != nil {
		t.Fatal(err)
	}
	r.Store = s
	t.Cleanup(func() { s.Close() })
}

// add adds a window of ten seconds that begins now, and turns the clock.
func (r *rig) add(t *testing.T, p *profile.Profile) {
	t.Helper()
	r.addLong(t, p, 10*time.Second)
}

// addLong adds a window that begins now, and turns the clock.
func (r *rig) addLong(t *testing.T, p *profile.Profile, d time.Duration) {
	t.Helper()
	p.Start, p.Duration = r.now, d
	r.now = r.now.Add(d)
	if err := r.Add(p); err != nil {
		t.Fatal(err)
	}
}

// all is everything that there is.
func (r *rig) all(t *testing.T, content sink.Content) *profile.Profile {
	t.Helper()
	p, err := Read(r.path).Query(t.Context(), Selection{From: began.AddDate(-10, 0, 0), To: began.AddDate(10, 0, 0),
		Content: content})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// totals are what merging must keep.
type totals struct {
	samples, folded uint64
	cpu, unseen     uint64 // ns
	events          uint64
	values          [profile.EventKinds][profile.MaxEventValues]float64
	calls           float64
	covered         time.Duration
}

func (n *totals) add(p *profile.Profile) {
	n.folded += p.Counts.Folded
	n.covered += p.Duration
	for _, proc := range p.Processes {
		for _, th := range proc.Threads {
			if th.Tree != nil {
				n.samples += th.Tree.Total()
			}
			n.cpu += uint64(math.Round(th.CPUTime(p.Period)))
			n.unseen += uint64(th.Unseen)
		}
		for _, e := range proc.Events {
			for _, row := range e.Rows {
				n.events += row.Events
				for v := range row.Values {
					n.values[e.Kind][v] += row.Values[v]
				}
			}
		}
		for _, c := range proc.Calls {
			n.calls += c.Graph.Total() + c.Graph.Overflow()
		}
	}
}

func totalsOf(p *profile.Profile) (n totals) {
	n.add(p)
	return n
}

// varied is a window with services, threads, stacks, events and calls. Values are whole, so that
// sums of them are exact.
func varied(rng *rand.Rand, processes, stacks int) *profile.Profile {
	p := &profile.Profile{Period: time.Second / 99, Event: "cpu-clock", Comments: []string{"vmprof-agent test"}}
	frame := func(service, n int) symbol.Symbol {
		f := symbol.Frame{Function: fmt.Sprintf("com.acme.s%d.Class%d.method", service, n),
			File: fmt.Sprintf("Class%d.java", n), Line: n % 100,
			Kind: symbol.Kind(n % 6), Mapping: sinktest.Jit, Address: uint64(n*64 + rng.IntN(8))}
		return symbol.Intern(f)
	}
	for i := range processes {
		proc := &profile.Process{PID: 1000 + i, Comm: "java", Runtime: "hotspot",
			Service: fmt.Sprintf("service-%d", i%7), VM: "17", Notes: []string{"a note"},
			Extents: []profile.Extent{{Subject: profile.SubjectCPU, What: "CPU time", Unit: "nanoseconds", There: 4,
				Observed: 3, Missed: []profile.Missed{{Amount: 1, Why: "asleep"}}}}}
		for tid := range 3 {
			tree := new(cct.Tree[symbol.Symbol])
			for range stacks {
				stack := make([]symbol.Symbol, 1+rng.IntN(12))
				for d := range stack {
					stack[d] = frame(i, rng.IntN(40))
				}
				tree.AddNew(stack, rng.IntN(3), 1+rng.Uint64N(5))
			}
			th := &profile.Thread{TID: tid, Name: fmt.Sprintf("worker-%d", tid), Tree: tree}
			if i%3 > 0 { // whole numbers of ns, so that sums are exact
				th.SampleTime, th.Unseen, th.UnseenIn = float64(1e6+i), time.Duration(10*i+tid), profile.Waking
			}
			proc.Threads = append(proc.Threads, th)
			if i%3 == 2 {
				idle := &profile.Thread{TID: 9, Name: "idle", Tree: new(cct.Tree[symbol.Symbol]), Unseen: 77,
					UnseenIn: profile.NotSampled}
				proc.Threads = append(proc.Threads, idle)
			}
			p.Counts.Folded += tree.Total()
		}
		for _, kind := range []profile.EventKind{profile.Allocations, profile.Locks} {
			e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbol.Symbol]), Basis: []string{"estimated"},
				Coverage: &profile.Coverage{Time: time.Second, Slices: 1, Drawn: 2}}
			for range stacks {
				at := e.Tree.Add([]symbol.Symbol{frame(i, rng.IntN(40)), frame(i, rng.IntN(40))}, 1)
				e.Rows = append(e.Rows, profile.EventRow{Context: at, TID: 7, Thread: "worker-1", Events: 1,
					EventLabels: profile.EventLabels{Class: fmt.Sprintf("C%d", rng.IntN(9))},
					Values:      [3]float64{1, float64(rng.IntN(1e6)), 0}})
			}
			proc.Events = append(proc.Events, e)
		}
		g := new(profile.Graph)
		for range stacks {
			g.Add(profile.Edge{Caller: frame(i, rng.IntN(40)), Callee: frame(i, rng.IntN(40)),
				Site: profile.Site{Line: 3, Offset: -1}}, float64(rng.IntN(100)))
		}
		proc.Calls = []*profile.Calls{{Engine: "page", Graph: g, Rate: profile.Rate{Hz: 10}}}
		p.Processes = append(p.Processes, proc)
	}
	p.Counts.Attempted, p.Counts.Delivered = p.Counts.Folded+1, p.Counts.Folded
	p.Counts.Dropped = map[string]uint64{"ring_full": 1}
	return p
}

// What was stored is read back, merged or not: sums are exact at every age.
func TestSumsStay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	r := newRig(t, Options{Fine: time.Minute, Medium: 3 * time.Hour, Keep: 100 * time.Hour})
	var want totals
	check := func(levels string) {
		t.Helper()
		if got := totalsOf(r.all(t, 0)); got != want {
			t.Fatalf("%s: %+v, want %+v", levels, got, want)
		}
		if got := have(t, r.path); got != levels {
			t.Errorf("segments of levels %q, want %q", got, levels)
		}
	}
	for range 366 {
		p := varied(rng, 3, 8)
		r.add(t, p)
		want.add(p)
	}
	check("00")
	p := varied(rng, 3, 8)
	r.add(t, p)
	want.add(p)
	check("10")
	p = varied(rng, 3, 8)
	r.addLong(t, p, 4*time.Hour)
	want.add(p)
	for range 3 { // the first one begins a segment, and ages the others
		p := varied(rng, 3, 8)
		r.add(t, p)
		want.add(p)
	}
	check("200")
	// An hour in windows of ten minutes.
	slices, err := Read(r.path).Timeline(t.Context(), began, began.Add(time.Hour), "")
	if err != nil || len(slices) != 6 {
		t.Fatalf("%d windows, %v; want 6", len(slices), err)
	}
	for _, s := range slices {
		if s.Covered != 10*time.Minute || !s.Start.Truncate(10*time.Minute).Equal(s.Start) {
			t.Errorf("a window at %v covers %v", s.Start, s.Covered)
		}
	}
	if n := r.Stats(); n.Windows != 371 || n.Merges != 2 {
		t.Errorf("%d windows, %d merges", n.Windows, n.Merges)
	}
}

// have are the levels of the segments, in order.
func have(t *testing.T, path string) (text string) {
	t.Helper()
	files, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		_, level, _ := strings.Cut(f.Name(), ".")
		text += level
	}
	return text
}

// Parts of a time add up to all of it, and there are not too many.
func TestSplit(t *testing.T) {
	r := newRig(t, Options{})
	for range 7 {
		r.add(t, sinktest.Shop())
	}
	reader := Read(r.path)
	want := Selection{From: began, To: r.now}
	all, err := reader.Query(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	var samples uint64
	var length time.Duration
	parts := 0
	err = reader.Split(t.Context(), want, 3, func(p *profile.Profile) error {
		parts++
		samples += totalsOf(p).samples
		length += p.Duration
		return nil
	})
	if err != nil || parts != 3 || samples != totalsOf(all).samples || length != all.Duration {
		t.Errorf("%d parts of %d samples and %v, %v; want %d and %v", parts, samples, length, err,
			totalsOf(all).samples, all.Duration)
	}
	stop := errors.New("enough")
	if err := reader.Split(t.Context(), want, 3, func(*profile.Profile) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if err := reader.Split(t.Context(), Selection{From: began.Add(-2 * time.Hour), To: began.Add(-time.Hour)}, 3,
		nil); !errors.Is(err, ErrNone) {
		t.Errorf("another time: %v", err)
	}
}

// All fields of a frame are kept, but for the address.
func TestFrame(t *testing.T) {
	recorded := symbol.Frame{Function: "total", SystemName: "main.total", File: "main.go", Line: 23, StartLine: 18,
		Kind:    symbol.KindNative,
		Inlined: true, Approximate: true, Mapping: unique.Make(symbol.Mapping{File: "/usr/bin/shop", BuildID: "1a2b"})}
	want := recorded
	recorded.Address = 0x1234
	tree := new(cct.Tree[symbol.Symbol])
	tree.Add([]symbol.Symbol{symbol.Intern(recorded)}, 1)
	r := newRig(t, Options{})
	r.add(t, &profile.Profile{Processes: []*profile.Process{{PID: 1,
		Threads: []*profile.Thread{{TID: 1, Tree: tree}}}}})
	stored := r.all(t, 0).Processes[0].Threads[0].Tree
	if stored.Len() != 1 || stored.Node(1).Key.Value() != want {
		t.Errorf("%+v, want %+v", stored.Node(1).Key.Value(), want)
	}
}

// Labels of processes are kept. Merging leaves apart what had others.
func TestProcessLabels(t *testing.T) {
	r := newRig(t, Options{})
	for _, team := range []string{"a", "b", "a", ""} {
		tree := new(cct.Tree[symbol.Symbol])
		tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "f"})}, 1)
		proc := &profile.Process{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: tree}}}
		if team != "" {
			proc.Labels = []profile.Label{{Name: "area", Value: "x"}, {Name: "team", Value: team}}
		}
		r.add(t, &profile.Profile{Processes: []*profile.Process{proc}})
	}
	stored, err := sink.Pprof(r.all(t, 0), sink.Time)
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]int64{}
	for _, s := range stored.Sample {
		samples[strings.Join(append(s.Label["area"], s.Label["team"]...), " ")] += s.Value[0]
	}
	if want := map[string]int64{"x a": 2, "x b": 1, "": 1}; !maps.Equal(samples, want) {
		t.Errorf("%v, want %v", samples, want)
	}
}

// A profile of the history is the profile that was recorded, but for threads, addresses and
// versions.
func TestRoundTrip(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"time": sinktest.Shop(), "calls": sinktest.ShopCalls(), "both": sinktest.ShopBoth(),
		"events": sinktest.ShopEvents(), "partial": sinktest.ShopPartial(),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.add(t, p)
			want := totalsOf(p)
			got := r.all(t, 0)
			if n := totalsOf(got); n != want {
				t.Errorf("%+v, want %+v", n, want)
			}
			for _, content := range []sink.Content{sink.Time, sink.CallCounts, sink.OfEvents(profile.Locks),
				sink.OfEvents(profile.Allocations)} {
				before, err := sink.Pprof(p, content)
				if err != nil {
					t.Fatal(err)
				}
				after, err := sink.Pprof(r.all(t, content), content)
				if err != nil {
					t.Fatal(err)
				}
				for i := range before.SampleType {
					var a, b int64
					for _, s := range before.Sample {
						a += s.Value[i]
					}
					for _, s := range after.Sample {
						b += s.Value[i]
					}
					if a != b {
						t.Errorf("%s of %v: %d, want %d", before.SampleType[i].Type, content, b, a)
					}
				}
			}
		})
	}
}

// The history of an agent with fewer or more kinds of code and events is read: kinds that it lacks
// are 0, and unknown ones are left out.
func TestOtherKinds(t *testing.T) {
	for _, kinds := range []int{1, max(int(profile.CodeKinds), int(profile.EventKinds)) + 2, maxKinds, maxKinds + 1} {
		name := "shop"
		start, span, covered, cpu, events := began.UnixNano(), time.Second, time.Second, kinds, kinds
		w := codec{format: current}
		number(&w, &start)
		number(&w, &span)
		number(&w, &covered)
		number(&w, &cpu)
		number(&w, &events)
		list(&w, &[]Sum{{}}, maxSums, func(*Sum) {
			w.text(&name)
			for range cpu {
				used := time.Minute
				number(&w, &used)
			}
			for range events {
				value := 3.
				w.float(&value)
			}
		})
		var h header
		r := codec{reads: true, format: current, buf: w.buf}
		r.header(&h, new(services))
		if kinds > maxKinds {
			if r.err == nil {
				t.Errorf("%d kinds are read", kinds)
			}
			continue
		}
		if r.err != nil || len(r.buf) != 0 || len(h.sums) != 1 || h.sums[0].Service != "shop" {
			t.Fatalf("%d kinds: %+v, %v, %d bytes left", kinds, h, r.err, len(r.buf))
		}
		for k, used := range h.sums[0].CPU {
			if want := time.Minute; k < kinds != (used == want) {
				t.Errorf("%d kinds: kind %d has %v", kinds, k, used)
			}
		}
		for k, value := range h.sums[0].Events {
			if k < kinds != (value == 3) {
				t.Errorf("%d kinds: events %d have %v", kinds, k, value)
			}
		}
	}
}

// A selection can be had window by window, and merged where there are too many. Together they are
// what Query has.
func TestSplitLengths(t *testing.T) {
	r := newRig(t, Options{})
	rng := rand.New(rand.NewPCG(7, 8))
	for range 7 {
		r.add(t, varied(rng, 3, 5))
	}
	want := Selection{From: began.Add(10 * time.Second), To: began.Add(70 * time.Second)}
	for most, lengths := range map[int][]int{6: {1, 1, 1, 1, 1, 1}, 9: {1, 1, 1, 1, 1, 1}, 4: {2, 2, 2}, 5: {2, 2, 2},
		2: {3, 3}, 1: {6}} {
		var sum totals
		at := want.From
		got := 0
		if err := Read(r.path).Split(t.Context(), want, most, func(p *profile.Profile) error {
			if length := time.Duration(lengths[got]) * 10 * time.Second; !p.Start.Equal(at) || p.Duration != length {
				t.Errorf("at most %d: profile %d is %v from %v, want %v from %v", most, got, p.Duration, p.Start,
					length, at)
			}
			at = at.Add(p.Duration)
			got++
			sum.add(p)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		all, err := Read(r.path).Query(t.Context(), want)
		if err != nil {
			t.Fatal(err)
		}
		if got != len(lengths) || sum != totalsOf(all) {
			t.Errorf("at most %d: %d profiles of %+v, want %d of %+v", most, got, sum, len(lengths), totalsOf(all))
		}
	}
	// Less than half of any window: what touches it, as in Query.
	touched := 0
	if err := Read(r.path).Split(t.Context(), Selection{From: began.Add(11 * time.Second),
		To: began.Add(13 * time.Second)}, 6, func(p *profile.Profile) error {
		touched++
		return nil
	}); err != nil || touched != 1 {
		t.Errorf("a part of a window: %d profiles, %v", touched, err)
	}
	enough := errors.New("enough")
	calls := 0
	if err := Read(r.path).Split(t.Context(), want, 6,
		func(*profile.Profile) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// BenchmarkAdd stores windows of 20 processes with 4,000 stacks in all, of which most differ from
// window to window.
func BenchmarkAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var windows []*profile.Profile
	for range 10 {
		windows = append(windows, varied(rng, 20, 70))
	}
	now := began
	s, err := Open(filepath.Join(b.TempDir(), "history"), &Options{Now: func() time.Time { return now }})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		p := windows[i%len(windows)]
		p.Start, p.Duration = now, 10*time.Second
		now = now.Add(10 * time.Second)
		if err := s.Add(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.Stats().Bytes)/float64(s.Stats().Windows), "bytes/window")
}
