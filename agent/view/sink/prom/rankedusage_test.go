package prom

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// period makes sums of seconds exact in binary.
const period = time.Second / 128

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// testProcess is a process of a test window: samples by the function that was innermost.
type testProcess struct {
	service, runtime string
	samples          map[string]uint64
}

// window makes the profile of the n-th window of 10 s. A function named "" is a sample without a
// stack.
func window(n int, procs ...testProcess) *profile.Profile {
	p := &profile.Profile{Start: epoch.Add(time.Duration(n) * 10 * time.Second), Duration: 10 * time.Second,
		Period: period}
	for i, pr := range procs {
		tree := new(cct.Tree[symbol.Symbol])
		for function, samples := range pr.samples {
			var stack []symbol.Symbol
			if function != "" {
				stack = []symbol.Symbol{
					// A line per sample count: lines are no labels.
					symbol.Intern(symbol.Frame{Function: function, Line: int(samples), Kind: symbol.KindJIT}),
					symbol.Intern(symbol.Frame{Function: "main", Kind: symbol.KindJIT}),
				}
			}
			tree.Add(stack, samples)
		}
		p.Processes = append(p.Processes, &profile.Process{
			PID: i + 1, Service: pr.service, Runtime: pr.runtime,
			Threads: []*profile.Thread{{TID: i + 1, Tree: tree}, {TID: 1000 + i}},
		})
	}
	return p
}

// series is what one scrape says of vmprof_cpu_seconds_total, in samples.
type series map[string]struct {
	samples float64
	created time.Time
}

func scrape(t *testing.T, h *rankedUsage) (series, map[string]float64) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(h)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, gauges := make(series), make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			key := strings.Join(labels, " ") // method runtime service
			if f.GetName() != "vmprof_cpu_seconds_total" {
				gauges[f.GetName()+" "+key] = m.Gauge.GetValue()
				continue
			}
			s := got[key]
			s.samples = m.Counter.GetValue() / period.Seconds()
			s.created = m.Counter.CreatedTimestamp.AsTime()
			got[key] = s
		}
	}
	return got, gauges
}

func (s series) String() string {
	var lines []string
	for key, v := range s {
		lines = append(lines, fmt.Sprint(key, " = ", math.Round(v.samples*1e6)/1e6))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

type samples = map[string]uint64

func TestRankedUsage(t *testing.T) {
	shop := func(s samples) testProcess { return testProcess{"shop", "hotspot", s} }
	for _, tt := range []struct {
		name    string
		windows [][]testProcess
		want    string // series after the last window
	}{
		{"methods, the rest, and runtimes apart",
			[][]testProcess{{shop(samples{"get": 90, "put": 70, "hash": 60, "": 5}),
				{"shop", "", samples{"memcpy": 80}}}},
			"(other) hotspot shop = 135\nget hotspot shop = 90\nmemcpy native shop = 80"},
		{"processes of one service add up",
			[][]testProcess{{shop(samples{"get": 90}), shop(samples{"get": 10})}},
			"get hotspot shop = 100"},
		{"a method that loses its place ends, and its time is not moved",
			[][]testProcess{{shop(samples{"a": 50, "b": 60})}, {shop(samples{"c": 500, "a": 7})}},
			"(other) hotspot shop = 7\nb hotspot shop = 60\nc hotspot shop = 500"},
		{"a method that comes back goes on where it stopped",
			[][]testProcess{{shop(samples{"a": 50, "b": 60})}, {shop(samples{"c": 500})}, {shop(samples{"a": 2000})}},
			"a hotspot shop = 2050\nc hotspot shop = 500"},
		{"services beyond the bound are one",
			[][]testProcess{{shop(samples{"a": 50}), {"cart", "hotspot", samples{"a": 40}},
				{"bash", "", samples{"x": 30}}, {"sshd", "", samples{"y": 20}}}},
			"(other) native (other) = 50\na hotspot cart = 40\na hotspot shop = 50"},
		{"a service that loses its place goes on where it stopped",
			[][]testProcess{
				{shop(samples{"a": 50}), {"cart", "hotspot", samples{"a": 40}}},
				{shop(samples{"a": 50}), {"cart", "hotspot", samples{"a": 1}}, {"web", "", samples{"w": 400}}},
				{shop(samples{"a": 50}), {"cart", "hotspot", samples{"a": 4000}}, {"web", "", samples{"w": 1}}}},
			"a hotspot cart = 4040\nw native web = 401\n(other) hotspot (other) = 51"},
		{"names that would pretend to be the rest are in it",
			[][]testProcess{{shop(samples{"(other)": 90, "a": 50}), {"(other)", "hotspot", samples{"a": 900}}}},
			"(other) hotspot (other) = 900\n(other) hotspot shop = 90\na hotspot shop = 50"},
		{"names that look the same are the same",
			[][]testProcess{{shop(samples{"L$$Lambda$1/0x0000000840066040.f": 20,
				"L$$Lambda$2/0x0000000840066840.f": 30, "n\x00": 1, "n\x01": 19})}},
			"L$$Lambda.f hotspot shop = 50\nn? hotspot shop = 20"},
		{"cold methods and services have no series",
			[][]testProcess{{shop(samples{"a": 100, "b": 12}), {"cron", "", samples{"c": 12}}}},
			"(other) hotspot shop = 12\n(other) native (other) = 12\na hotspot shop = 100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newRankedUsage(cpuTime, 2, 2)
			for i, procs := range tt.windows {
				h.Observe(window(i, procs...), nil)
			}
			got, _ := scrape(t, h)
			want := strings.Split(tt.want, "\n")
			slices.Sort(want)
			if got.String() != strings.Join(want, "\n") {
				t.Errorf("got\n%v\nwant\n%v", got, strings.Join(want, "\n"))
			}
		})
	}
}

func TestServiceExits(t *testing.T) {
	var (
		h    = newRankedUsage(cpuTime, 5, 5)
		a    = testProcess{"a", "hotspot", samples{"f": 50}}
		b    = testProcess{"b", "hotspot", samples{"f": 50}}
		idle = map[string]int{"a": 1, "b": 1}
		gone = map[string]int{"a": 1}
	)
	for i, step := range []struct {
		procs []testProcess
		alive map[string]int
		want  string
	}{
		{[]testProcess{a, b}, idle, "f hotspot a = 50\nf hotspot b = 50"},
		{[]testProcess{a}, idle, "f hotspot a = 100\nf hotspot b = 50"}, // idle is not gone
		{[]testProcess{a}, idle, "f hotspot a = 150\nf hotspot b = 50"},
		{[]testProcess{a}, idle, "f hotspot a = 200\nf hotspot b = 50"},
		{[]testProcess{a}, gone, "f hotspot a = 250\nf hotspot b = 50"}, // once more, for whoever scrapes between
		{[]testProcess{a}, gone, "f hotspot a = 300"},
		{[]testProcess{a, b}, idle, "f hotspot a = 350\nf hotspot b = 50"}, // another process: a new counter
		{nil, nil, "f hotspot a = 350\nf hotspot b = 50"},
		{nil, nil, ""},
	} {
		h.Observe(window(i, step.procs...), step.alive)
		got, _ := scrape(t, h)
		if got.String() != step.want {
			t.Errorf("window %d: got\n%v\nwant\n%v", i, got, step.want)
		}
		if created := got["f hotspot b"].created; i == 6 && !created.Equal(epoch.Add(60*time.Second)) {
			t.Errorf("the new counter claims to count since %v", created)
		}
	}
	if len(h.absent) != 0 || len(h.services.entries) != 0 {
		t.Errorf("%v and %v are still remembered", h.absent, h.services.entries)
	}
}

// Whatever comes, a scraper that sees each window adds up all CPU time, and no series ever goes
// back.
func TestSumsStayTrue(t *testing.T) {
	for seed := range uint64(20) {
		var (
			r     = rand.New(rand.NewPCG(seed, 0))
			h     = newRankedUsage(cpuTime, 3, 3)
			last  = make(map[string]series) // by series and its birth: an incarnation
			truth uint64
			seen  float64
		)
		for i := range 200 {
			var procs []testProcess
			alive := make(map[string]int)
			for s := range 6 {
				if r.IntN(4) == 0 {
					continue
				}
				pr := testProcess{fmt.Sprint("s", s), []string{"", "hotspot"}[r.IntN(2)], samples{}}
				for range r.IntN(8) {
					n := uint64(math.Exp(r.Float64() * 8))
					pr.samples[fmt.Sprint("m", r.IntN(12))] = n
				}
				for _, n := range pr.samples {
					truth += n
				}
				procs = append(procs, pr)
				alive[pr.service] = 1
			}
			h.Observe(window(i, procs...), alive)
			got, _ := scrape(t, h)
			for key, v := range got {
				id := key + v.created.String()
				before := last[id][key].samples
				if v.samples < before {
					t.Fatalf("seed %d, window %d: %s went from %v to %v", seed, i, key, before, v.samples)
				}
				seen += v.samples - before
				last[id] = series{key: v}
			}
			if math.Abs(seen-float64(truth)) > 1e-3 {
				t.Fatalf("seed %d, window %d: the series add up to %v samples, want %d", seed, i, seen, truth)
			}
		}
	}
}

// A guest can make any number of names. It gets its places and no more memory than they need.
func TestMillionMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	const names, places = 1_000_000, 50
	h := newRankedUsage(cpuTime, places, 10)
	all := make(samples, names)
	var rest uint64
	for i := range names {
		n := uint64(13 + names - i) // the first are the hottest
		all[fmt.Sprintf("com.acme.Generated%d.run", i)] = n
		if i >= places {
			rest += 2 * n
		}
	}
	p := window(0, testProcess{"shop", "hotspot", all})
	h.Observe(p, nil)
	h.Observe(p, nil)
	got, gauges := scrape(t, h)
	if len(got) != places+1 {
		t.Errorf("%d series, want %d and (other)", len(got), places)
	}
	if n := got["(other) hotspot shop"].samples; math.Round(n) != float64(rest) {
		t.Errorf("(other) has %v samples, want %d", n, rest)
	}
	if folded := gauges["vmprof_methods_folded shop"]; folded != names-places {
		t.Errorf("%v methods folded, want %d", folded, names-places)
	}
	if n := len(h.services.entries["shop"].value.methods.entries); n != keepFactor*places {
		t.Errorf("%d names are remembered, want %d", n, keepFactor*places)
	}
}

func TestManyServices(t *testing.T) {
	const names, places = 10_000, 20
	h := newRankedUsage(cpuTime, 5, places)
	var procs []testProcess
	for i := range names {
		procs = append(procs, testProcess{fmt.Sprint("s", i), "", samples{"f": 13}})
	}
	h.Observe(window(0, procs...), nil)
	got, gauges := scrape(t, h)
	if len(got) != places+1 {
		t.Errorf("%d series, want %d and (other)", len(got), places)
	}
	if folded := gauges["vmprof_services_folded "]; folded != names-places {
		t.Errorf("%v services folded, want %d", folded, names-places)
	}
	if n := len(slices.Collect(maps.Keys(h.services.entries))); n != keepFactor*places {
		t.Errorf("%d services are remembered, want %d", n, keepFactor*places)
	}
}
