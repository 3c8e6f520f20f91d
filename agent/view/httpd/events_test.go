package httpd

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// busyShop is the shop with events of every kind in its JVM.
func busyShop(n uint64) *profile.Profile {
	p := shop(n)
	frame := func(name string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, SystemName: name, Kind: symbol.KindJIT})
	}
	total := []symbol.Symbol{frame("com.acme.shop.Cart.total"), frame("com.acme.shop.Server.handle")}
	add := []symbol.Symbol{frame("com.acme.shop.Cart.add"), frame("com.acme.shop.Server.handle")}
	for kind := range profile.EventKinds {
		e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbol.Symbol])}
		row := func(stack []symbol.Symbol, labels profile.EventLabels, values ...float64) {
			r := profile.EventRow{Context: e.Tree.Add(stack, 5), TID: 1010 + len(e.Rows), Thread: "http",
				EventLabels: labels, Events: 5}
			copy(r.Values[:], values)
			e.Rows = append(e.Rows, r)
		}
		switch kind {
		case profile.Allocations:
			row(total, profile.EventLabels{Class: "byte[]", Place: "young"}, 1000, 60e6)
			row(total, profile.EventLabels{Class: "byte[]", Place: "old"}, 100, 40e6)
			row(add, profile.EventLabels{Class: hostile}, 5000, 5e6)
			row(nil, profile.EventLabels{Class: "byte[]", What: "exact"}, 1101, 101e6)
		case profile.Locks:
			row(total, profile.EventLabels{Class: "java.util.Hashtable", What: "block"}, 5, 5, 2.5e9)
			row(add, profile.EventLabels{What: "wait"}, 0, 0, 600e9)
		case profile.Values:
			row(total, profile.EventLabels{Probe: "usdt:a:b=arg1", Value: "16-31"}, 20, -400)
		case profile.Pauses:
			row(nil, profile.EventLabels{What: "G1CollectForAllocation"}, 2, 1e9)
		case profile.Faults:
			row(total, profile.EventLabels{Class: "com.acme.shop.Cart", Field: "items", Offset: 16}, 30)
			row(add, profile.EventLabels{}, 12)
		case profile.Barriers:
			row(total, profile.EventLabels{Class: "com.acme.shop.Cart", Place: "old"}, 1280)
		case profile.Exceptions:
			row(total, profile.EventLabels{Class: "java.lang.IllegalStateException"}, 5)
		case profile.Cycles:
			row(total, profile.EventLabels{}, 4e9, 2e9)
		case profile.OffCPU:
			row(total, profile.EventLabels{Place: "blocked", What: "socket"}, 30, 3e9)
		case profile.Wall:
			row(total, profile.EventLabels{Place: "running", What: "running"}, 2e9)
			row(add, profile.EventLabels{Place: "blocked", What: "idle"}, 8e9)
		}
		p.Processes[0].Events = append(p.Processes[0].Events, e)
	}
	p.EventCounts = profile.EventCounts{Attempted: 101, Delivered: 100, Folded: 97, Hits: 900, Cost: time.Millisecond,
		Dropped: map[string]uint64{"ring_full": 1}, Discarded: map[string]uint64{"malformed": 3}}
	return p
}

// recording is an agent that records these kinds.
func recording(kinds ...profile.EventKind) *fake {
	return &fake{noTime: true, stats: profile.Stats{Ready: true, Events: &profile.EventStats{Kinds: kinds}}}
}

// Each kind is a profile of its own, and where it is not recorded the answer names the flag, beside
// those that there are.
func TestPullEvents(t *testing.T) {
	for kind := range profile.EventKinds {
		t.Run(kind.String(), func(t *testing.T) {
			other := (kind + 1) % profile.EventKinds
			f := recording(other)
			_, hs := start(t, f)
			resp, body := get(t, fmt.Sprintf("%s/profiles/%v?seconds=1", hs.URL, kind))
			flag := fmt.Sprintf("serve -e %v,%v", min(kind, other), max(kind, other))
			if resp.StatusCode != 404 || !strings.Contains(body, flag) || resp.Header.Get("X-Go-Pprof") != "1" ||
				strings.Contains(body, "--probe") != (kind == profile.Values) {
				t.Errorf("where it is not recorded: %d %q, want 404 and %q", resp.StatusCode, body, flag)
			}
			if n := len(f.called()); n != 0 {
				t.Errorf("%d windows were collected for nothing", n)
			}

			_, hs = start(t, recording(kind))
			resp, body = get(t, fmt.Sprintf("%s/profiles/%v?seconds=1&pid=1000", hs.URL, kind))
			if got, want := resp.Header.Get("Content-Disposition"), fmt.Sprintf(`attachment; filename="%v.pb.gz"`,
				kind); got != want {
				t.Errorf("Content-Disposition %q, want %q", got, want)
			}
			p, err := pprof.ParseData([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := stacks.EventKindOf(p); !ok || got != kind || len(p.Sample) == 0 {
				t.Errorf("%d samples of %v", len(p.Sample), p.SampleType)
			}
		})
	}
}

// A pull of what is not recorded is refused, with the flags that would record it.
func TestPullTimeRefused(t *testing.T) {
	_, hs := start(t, recording(profile.Allocations, profile.Locks))
	for path, want := range map[string]string{"cpu": "serve -e cpu,alloc,lock", "calls": "serve -e calls,alloc,lock"} {
		if resp, body := get(t, hs.URL+"/profiles/"+path); resp.StatusCode != 404 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q, want %q", path, resp.StatusCode, body, want)
		}
	}
}

// What pages show adds up: each class is a frame below its stack, places and threads are merged,
// and what would hide all else is left out.
func TestMergeEvents(t *testing.T) {
	windows := []*profile.Profile{busyShop(0), busyShop(1)}
	for _, tt := range []struct {
		kind  profile.EventKind
		value int
		want  map[string]int64 // the value of both windows, by the two innermost frames
	}{
		{profile.Allocations, 1, map[string]int64{"byte[] < com.acme.shop.Cart.total": 200e6,
			"hostile < com.acme.shop.Cart.add": 10e6}},
		{profile.Locks, 2, map[string]int64{"block java.util.Hashtable < com.acme.shop.Cart.total": 5e9}},
		{profile.Values, 1, map[string]int64{"usdt:a:b=arg1 16-31 < com.acme.shop.Cart.total": -800}},
		{profile.Pauses, 1, map[string]int64{"G1CollectForAllocation < [unknown]": 2e9}},
		{profile.Faults, 0, map[string]int64{"com.acme.shop.Cart < com.acme.shop.Cart.total": 60,
			"[unknown] < com.acme.shop.Cart.add": 24}},
		{profile.Cycles, 1, map[string]int64{"com.acme.shop.Cart.total < com.acme.shop.Server.handle": 4e9}},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			p, err := merge(windows, kindOf(tt.kind), maxPageNodes)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.CheckValid(); err != nil {
				t.Error(err)
			}
			got := make(map[string]int64)
			for _, s := range p.Sample {
				var names []string
				for _, l := range s.Location[:min(2, len(s.Location))] {
					names = append(names, l.Line[0].Function.Name)
				}
				if strings.Contains(names[0], "script") {
					names[0] = "hostile"
				}
				got[strings.Join(names, " < ")] += s.Value[tt.value]
				if want := []string{"java [1000]"}; !slices.Equal(s.Label[processLabel], want) || len(s.Label) != 1 ||
					len(s.NumLabel) != 0 {
					t.Errorf("labels %v, %v", s.Label, s.NumLabel)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if a := sinktest.Metadata(t, p).Events; a == nil || !a.Mixed || a.Counts.Folded != 194 ||
				a.Counts.Hits != 1800 {
				t.Errorf("the account is %+v, want 194 events of all kinds and 1800 hits", a)
			}
			aside := slices.ContainsFunc(p.Comments, func(c string) bool { return strings.Contains(c, "are left out") })
			if want := tt.kind == profile.Allocations || tt.kind == profile.Locks; aside != want {
				t.Errorf("%q says what is left out: %v, want %v", p.Comments, aside, want)
			}
		})
	}
	if n := windows[0].EventCounts.Dropped["ring_full"]; n != 1 {
		t.Errorf("a window was changed: %d", n)
	}
}

// kindOf is what there is of a kind of events.
func kindOf(of profile.EventKind) *kind {
	return kinds[slices.IndexFunc(kinds, func(k *kind) bool { return k.Content == sink.OfEvents(of) })]
}

// The rarest are those that have least of what is seen first, not those that happened least.
func TestMergeEventsLimit(t *testing.T) {
	p, err := merge([]*profile.Profile{busyShop(0)}, kindOf(profile.Allocations), 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) != 2 || p.Sample[0].Value[1] != 100e6 || p.Sample[1].Value[1] != 5e6 {
		t.Fatalf("%v", p)
	}
	var names []string // innermost first
	for _, l := range p.Sample[1].Location {
		names = append(names, l.Line[0].Function.Name)
	}
	if !slices.Equal(names[1:], []string{profile.RareStacks, "com.acme.shop.Server.handle"}) {
		t.Errorf("the rest is in %q", names)
	}
}

// Pages show the first kind that is recorded.
func TestPagesOfEvents(t *testing.T) {
	for _, tt := range []struct {
		kinds        []profile.EventKind
		index, graph []string // what they have
	}{
		{[]profile.EventKind{profile.Allocations, profile.Locks},
			[]string{"allocated bytes of the last minute", "10.5 MB/s", "profiles/alloc?seconds=10",
				"profiles/lock?seconds=10", "/profiles/alloc?seconds=10'"},
			[]string{"alloc_space", "byte[]", "java [1000]"}},
		{[]profile.EventKind{profile.Locks}, []string{"25.0 %", "Waits for work are not included"},
			[]string{"delay", "block java.util.Hashtable"}},
		{[]profile.EventKind{profile.Pauses, profile.Cycles}, []string{"10.0 %", "profiles/cpi?seconds=10"},
			[]string{"G1CollectForAllocation"}},
		{[]profile.EventKind{profile.Faults}, []string{"4.2 /s"}, []string{"com.acme.shop.Cart"}},
		{[]profile.EventKind{profile.Cycles}, []string{"400 M/s"}, []string{"com.acme.shop.Cart.total"}},
		{[]profile.EventKind{profile.Values}, []string{"2 /s"}, []string{"usdt:a:b=arg1"}},
	} {
		t.Run(fmt.Sprint(tt.kinds), func(t *testing.T) {
			s, hs := start(t, recording(tt.kinds...))
			s.Observe(busyShop(0))
			_, index := get(t, hs.URL+"/plain")
			_, graph := get(t, hs.URL+"/ui/flamegraph")
			for page, wants := range map[*string][]string{&index: tt.index, &graph: tt.graph} {
				for _, want := range wants {
					if !strings.Contains(*page, want) {
						t.Errorf("no %q in\n%s", want, *page)
					}
				}
				if strings.Contains(*page, "<script>alert(") {
					t.Error("a name became code")
				}
			}
			if strings.Contains(index, "postgres") {
				t.Errorf("the front page has a process that used nothing:\n%s", index)
			}
			if strings.Contains(index, "profiles/cpu") || strings.Contains(index, "profiles/calls") {
				t.Errorf("the front page has what is not recorded:\n%s", index)
			}
			if resp, body := get(t, hs.URL+"/ui/source"); resp.StatusCode != 404 ||
				!strings.Contains(body, "/profiles/"+tt.kinds[0].String()+"?") {
				t.Errorf("what is not served: %d\n%s", resp.StatusCode, body)
			}
		})
	}
}

// Edges of calls are no stacks: there is nothing to show, and that is said.
func TestPagesOfCallsAlone(t *testing.T) {
	s, hs := start(t, &fake{noTime: true, stats: profile.Stats{Calls: new(profile.CallStats)}})
	s.Observe(shop(0))
	if resp, body := get(t, hs.URL+"/ui/flamegraph"); resp.StatusCode != 404 ||
		!strings.Contains(body, "/profiles/calls?") {
		t.Errorf("%d\n%s", resp.StatusCode, body)
	}
	if _, body := get(t, hs.URL+"/plain"); strings.Contains(body, "ui/flamegraph") ||
		!strings.Contains(body, "profiles/calls?") {
		t.Errorf("the front page leads there:\n%s", body)
	}
}

func TestScaled(t *testing.T) {
	for n, want := range map[float64]string{0: "0 ", 0.25: "0.2 ", 12: "12 ", 99.94: "99.9 ", 999: "999 ",
		999.6: "1.0 k", 1234567: "1.2 M", 5e18: "5000000 T"} {
		if got := scaled(n); got != want {
			t.Errorf("scaled(%v) = %q, want %q", n, got, want)
		}
	}
}
