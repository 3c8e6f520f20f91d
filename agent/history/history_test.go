package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
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

// add adds a window of ten seconds that ends now, and turns the clock.
func (r *rig) add(t *testing.T, p *profile.Profile) {
	t.Helper()
	p.Start, p.Duration = r.now, 10*time.Second
	r.now = r.now.Add(10 * time.Second)
	if err := r.Add(p); err != nil {
		t.Fatal(err)
	}
}

// all is everything that there is.
func (r *rig) all(t *testing.T, content sink.Content) *profile.Profile {
	t.Helper()
	p, err := Read(r.path).Query(t.Context(), Selection{From: began.AddDate(-10, 0, 0), To: began.AddDate(10, 0, 0), Content: content})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// totals are what merging must keep.
type totals struct {
	samples, folded uint64
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

// varied is a window with services, threads, stacks, events and calls. Values are whole, so that sums of them are exact.
func varied(rng *rand.Rand, processes, stacks int) *profile.Profile {
	p := &profile.Profile{Period: time.Second / 99, Event: "cpu-clock", Comments: []string{"vmprof-agent test"}}
	frame := func(service, n int) symbolize.Symbol {
		f := symbolize.Frame{Function: fmt.Sprintf("com.acme.s%d.Class%d.method", service, n), File: fmt.Sprintf("Class%d.java", n), Line: n % 100,
			Kind: symbolize.Kind(n % 6), Mapping: sinktest.Jit, Address: uint64(n*64 + rng.IntN(8))}
		return symbolize.Intern(f)
	}
	for i := range processes {
		proc := &profile.Process{PID: 1000 + i, Comm: "java", Runtime: "hotspot", Service: fmt.Sprintf("service-%d", i%7), VM: "17", Notes: []string{"a note"}}
		for tid := range 3 {
			tree := new(cct.Tree[symbolize.Symbol])
			for range stacks {
				stack := make([]symbolize.Symbol, 1+rng.IntN(12))
				for d := range stack {
					stack[d] = frame(i, rng.IntN(40))
				}
				tree.AddNew(stack, rng.IntN(3), 1+rng.Uint64N(5))
			}
			proc.Threads = append(proc.Threads, &profile.Thread{TID: tid, Name: fmt.Sprintf("worker-%d", tid), Tree: tree})
			p.Counts.Folded += tree.Total()
		}
		for _, kind := range []profile.EventKind{profile.Allocations, profile.Locks} {
			e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbolize.Symbol]), Basis: []string{"estimated"}, Coverage: &profile.Coverage{Time: time.Second, Slices: 1, Drawn: 2}}
			for range stacks {
				at := e.Tree.Add([]symbolize.Symbol{frame(i, rng.IntN(40)), frame(i, rng.IntN(40))}, 1)
				e.Rows = append(e.Rows, profile.EventRow{Context: at, TID: 7, Thread: "worker-1", Events: 1, EventLabels: profile.EventLabels{Class: fmt.Sprintf("C%d", rng.IntN(9))},
					Values: [3]float64{1, float64(rng.IntN(1e6)), 0}})
			}
			proc.Events = append(proc.Events, e)
		}
		g := new(profile.Graph)
		for range stacks {
			g.Add(profile.Edge{Caller: frame(i, rng.IntN(40)), Callee: frame(i, rng.IntN(40)), Site: profile.Site{Line: 3, Offset: -1}}, float64(rng.IntN(100)))
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
	r.now = r.now.Add(4 * time.Hour)
	for range 3 { // a merge each
		p := varied(rng, 3, 8)
		r.add(t, p)
		want.add(p)
	}
	check("20")
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
	if n := r.Stats(); n.Windows != 370 || n.Merges != 2 {
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

// The sums of the timeline are those of the profiles.
func TestTimeline(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, sinktest.Shop())
	r.add(t, sinktest.ShopEvents())
	slices, err := Read(r.path).Timeline(t.Context(), began, r.now, "")
	if err != nil || len(slices) != 2 {
		t.Fatalf("%d slices, %v", len(slices), err)
	}
	shop := sinktest.Shop()
	var cpu time.Duration
	for _, s := range slices[0].Services {
		for _, d := range s.CPU {
			cpu += d
		}
	}
	if want := time.Duration(totalsOf(shop).samples) * shop.Period; cpu != want {
		t.Errorf("%v of CPU time, want %v", cpu, want)
	}
	kinds := make(map[profile.CodeKind]bool)
	for _, s := range slices[0].Services {
		for k, d := range s.CPU {
			kinds[profile.CodeKind(k)] = kinds[profile.CodeKind(k)] || d > 0
		}
	}
	if !kinds[profile.GuestCode] || !kinds[profile.Collecting] || !kinds[profile.NativeCode] {
		t.Errorf("kinds of code: %v", kinds)
	}
	events := sumsOf(sinktest.ShopEvents())
	if len(events) == 0 || fmt.Sprint(slices[1].Services) != fmt.Sprint(events) {
		t.Errorf("sums %v, want %v", slices[1].Services, events)
	}
}

// A profile of the history is the profile that was recorded, but for threads, addresses and versions.
func TestRoundTrip(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"time": sinktest.Shop(), "calls": sinktest.ShopCalls(), "both": sinktest.ShopBoth(), "events": sinktest.ShopEvents(), "partial": sinktest.ShopPartial(),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.add(t, p)
			want := totalsOf(p)
			got := r.all(t, 0)
			if n := totalsOf(got); n != want {
				t.Errorf("%+v, want %+v", n, want)
			}
			for _, content := range []sink.Content{sink.Time, sink.CallCounts, sink.OfEvents(profile.Locks), sink.OfEvents(profile.Allocations)} {
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

// A window with too many stacks keeps its sums.
func TestRareStacks(t *testing.T) {
	p := varied(rand.New(rand.NewPCG(3, 4)), 10, 300)
	m := merger{frames: make(frameCache)}
	m.add(p, p.Start)
	got := m.finish(500)
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

// The history of an agent with fewer or more kinds of code and events is read: kinds that it lacks are 0, and unknown ones are left out.
func TestOtherKinds(t *testing.T) {
	for _, kinds := range []int{1, max(int(profile.CodeKinds), int(profile.EventKinds)) + 2, maxKinds, maxKinds + 1} {
		start, span, covered, cpu, events, id := began.UnixNano(), time.Second, time.Second, kinds, kinds, 0
		w := codec{}
		list(&w, &[]string{"shop"}, maxServices, func(s *string) {
			w.buf = append(binary.AppendUvarint(w.buf, uint64(len(*s))), *s...)
		})
		number(&w, &start)
		number(&w, &span)
		number(&w, &covered)
		number(&w, &cpu)
		number(&w, &events)
		list(&w, &[]Sum{{}}, maxSums, func(*Sum) {
			number(&w, &id)
			for range cpu {
				used := time.Minute
				number(&w, &used)
			}
			for range events {
				value := 3.
				w.float(&value)
			}
		})
		var (
			h        header
			services serviceNames
		)
		r := codec{reads: true, buf: w.buf}
		r.header(&h, &services)
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

// Windows with ever other stacks are added up in bounded memory.
func TestMergingIsBounded(t *testing.T) {
	var (
		m    merger
		want uint64
	)
	const each = maxContexts
	for window := range 2 * maxMerging / maxContexts {
		tree, rows := new(cct.Tree[symbolize.Symbol]), new(profile.Events)
		rows.Kind, rows.Tree = profile.Locks, new(cct.Tree[symbolize.Symbol])
		for i := range each {
			s := symbolize.Intern(symbolize.Frame{Function: "f", Line: window*each + i, Kind: symbolize.KindNative})
			tree.Add([]symbolize.Symbol{s}, 1)
			rows.Rows = append(rows.Rows, profile.EventRow{Context: rows.Tree.Add([]symbolize.Symbol{s}, 1), Events: 1})
		}
		want += each
		p := &profile.Profile{Start: began, Duration: time.Second, Processes: []*profile.Process{{PID: 1, Comm: "a",
			Threads: []*profile.Thread{{Name: "t", Tree: tree}}, Events: []*profile.Events{rows}}}}
		m.add(p, began.Add(time.Second))
		held := m.processes[0]
		if n := held.Threads[0].Tree.Len(); n > maxMerging {
			t.Fatalf("%d contexts after %d windows", n, window+1)
		}
		if e := held.events[profile.Locks]; e.Tree.Len() > maxMerging || len(e.Rows) > maxMerging {
			t.Fatalf("%d contexts and %d rows after %d windows", e.Tree.Len(), len(e.Rows), window+1)
		}
	}
	if got := totalsOf(m.finish(maxContexts)); got.samples != want || got.events != want {
		t.Errorf("%d samples and %d events, want %d", got.samples, got.events, want)
	}
}

func TestSelection(t *testing.T) {
	r := newRig(t, Options{})
	rng := rand.New(rand.NewPCG(5, 6))
	for range 6 {
		r.add(t, varied(rng, 14, 5))
	}
	read := Read(r.path)
	p, err := read.Query(t.Context(), Selection{From: began.Add(16 * time.Second), To: began.Add(44 * time.Second), Service: "service-3", Content: sink.Time})
	if err != nil {
		t.Fatal(err)
	}
	// The second window has less than half of its time in the selection, the last one too.
	if !p.Start.Equal(began.Add(20*time.Second)) || p.Duration != 20*time.Second {
		t.Errorf("%v from %v", p.Duration, p.Start)
	}
	if len(p.Processes) != 2 || p.Processes[0].Service != "service-3" || len(p.Processes[0].Events) != 0 || len(p.Processes[0].Threads) == 0 {
		t.Errorf("%d processes, %+v", len(p.Processes), p.Processes[0])
	}
	if !strings.Contains(p.Comments[0], "2 windows of 10s") {
		t.Errorf("%q", p.Comments)
	}
	// Less than half of any window: what touches it.
	p, err = read.Query(t.Context(), Selection{From: began.Add(11 * time.Second), To: began.Add(13 * time.Second)})
	if err != nil || p.Duration != 10*time.Second || !p.Start.Equal(began.Add(10*time.Second)) {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := read.Query(t.Context(), Selection{From: began.Add(time.Hour), To: began.Add(2 * time.Hour)}); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "it has 2026-11-25 ") {
		t.Errorf("a time without windows: %v", err)
	}
	if _, err := Read(filepath.Join(r.path, "none")).Query(t.Context(), Selection{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// A selection can be had window by window, and merged where there are too many. Together they are what Query has.
func TestSplit(t *testing.T) {
	r := newRig(t, Options{})
	rng := rand.New(rand.NewPCG(7, 8))
	for range 7 {
		r.add(t, varied(rng, 3, 5))
	}
	want := Selection{From: began.Add(10 * time.Second), To: began.Add(70 * time.Second)}
	for most, lengths := range map[int][]int{6: {1, 1, 1, 1, 1, 1}, 9: {1, 1, 1, 1, 1, 1}, 4: {2, 2, 2}, 5: {2, 2, 2}, 2: {3, 3}, 1: {6}} {
		var sum totals
		at := want.From
		got := 0
		if err := Read(r.path).Split(t.Context(), want, most, func(p *profile.Profile) error {
			if length := time.Duration(lengths[got]) * 10 * time.Second; !p.Start.Equal(at) || p.Duration != length {
				t.Errorf("at most %d: profile %d is %v from %v, want %v from %v", most, got, p.Duration, p.Start, length, at)
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
	enough := errors.New("enough")
	calls := 0
	if err := Read(r.path).Split(t.Context(), want, 6, func(*profile.Profile) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// BenchmarkAdd stores windows of 20 processes with 4,000 stacks in all, of which most differ from window to window.
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
