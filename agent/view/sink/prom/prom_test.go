package prom

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/program"
	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/reference/metrics.md")

// engines are names of call engines.
var engines = []string{"page", "hotspot", "listener", "usdt", "branch"}

// fixed is a Source whose answers never change. Every number is another one, so that the golden
// file shows a mix-up.
type fixed struct{}

func (fixed) Counts() (profile.Counts, error) {
	return profile.Counts{
		Attempted: 1000, Delivered: 990, Dropped: map[string]uint64{"ring_full": 10, "no_memory": 0},
		Folded: 983, Discarded: map[string]uint64{"malformed": 4, "exited": 3},
		Idle: 5000, Filtered: 70,
	}, nil
}

func (fixed) Stats() profile.Stats {
	return profile.Stats{
		Ready: true, Uptime: time.Hour, Ticks: true, Time: true,
		BPFTime: 1980 * time.Microsecond, BPFRuns: 1001, MapBytes: 9 << 20,
		RingSize: 8 << 20, RingBytes: 123456, ReaderLag: 80 * time.Millisecond, ReaderPauses: 21, FlushesCut: 2,
		Processes: map[string]int{"": 41, "hotspot": 2}, Services: map[string]int{"shop": 2, "cron.service": 1},
		Quarantined: 7,
		Workloads: map[profile.Workload]int{
			{Service: "shop", ContainerID: "3f4a9c0d7be1", PodUID: "0a1b2c3d-1111-2222-3333-444455556666",
				Pod: "shop-7d9f8b6c5-x2x4z", Namespace: "pr\"od\n", Main: "com.acme.Shop"}: 2,
			{Service: "cron.service"}: 1, {Service: "absent"}: 1,
		},
		StuckReads: 5, Redefined: 14,
		Reads: 8000, ReadFailures: map[string]uint64{"gone": 11, "timeout": 12},
		Failures: map[string]uint64{"names": 1, "record": 0},
		Calls: &profile.CallStats{
			Attempted: 400, Delivered: 390, Dropped: map[string]uint64{"ring_full": 10, "no_memory": 0}, Folded: 388,
			Discarded: map[string]uint64{"unnamed": 2},
			Hits:      401, Refused: 1, Bursts: 13, Skipped: 3,
			Watches: map[string]uint64{"complete": 31, "full": 32, "void": 33, "refused": 0}, BusyThreads: 34,
			Budget: 0.01, GuestTime: 90 * time.Second,
			Costs:       map[string]time.Duration{"page": 500 * time.Millisecond, "hotspot": 125 * time.Millisecond},
			Credibility: map[string]profile.Credibility{"shop": {Error: 0.125, Comparisons: 7}},
		},
		Events: &profile.EventStats{EventCounts: profile.EventCounts{
			Attempted: 710, Delivered: 705, Dropped: map[string]uint64{"ring_full": 5, "busy": 0}, Folded: 698,
			Discarded: map[string]uint64{"malformed": 7},
			Hits:      7100, Unattached: 11, Cost: 62500 * time.Microsecond, Waits: 9000, WaitsThinned: 8500,
			WaitsRefused: 2, Wakers: 400, WakersLost: 3,
		}, Kinds: []profile.EventKind{profile.OffCPU}, Wanted: map[string]time.Duration{"alloc": 90 * time.Second,
			"lock": 80 * time.Second},
			Observed: map[string]time.Duration{"alloc": 90 * time.Second, "lock": 16 * time.Second}},
		Frames: 30000, CodeLoads: 4321, EventsDropped: 12, ProcessesRefused: 8, ThreadsRefused: 6, ThreadEndsLost: 7,
		UnwindFrames: 21000, UnwindLookups: 1100, UnwindTables: 14, UnwindBytes: 3_400_000,
		UnwindLosses:    map[string]uint64{"no_table_yet": 15, "too_large": 1},
		StacksDisplaced: 9, WalksCut: 13, MethodMaps: 5432, MethodMapsMax: 1 << 20,
	}
}

// allEvents are all kinds.
var allEvents = func() (all [profile.EventKinds]bool) {
	for i := range all {
		all[i] = true
	}
	return all
}()

func pastStats() history.Stats {
	return history.Stats{
		Windows: 360, Bytes: 24_000_000, Lost: map[string]uint64{"disk_full": 3, "busy": 2, "too_large": 0,
			"failed": 1}, Cut: 77, Failed: map[string]uint64{"open": 1, "merge": 4, "remove": 0},
		Removed: map[string]uint64{"age": 1000, "size": 2000}, Size: 19_000_000,
		Unread: map[string]uint64{"damaged": 70, "other_version": 30, "failed": 0}, MaxSize: 200_000_000,
		Oldest: time.Unix(1_795_000_000, 0),
	}
}

func programState() program.State {
	return program.State{Runs: 12, Failed: map[string]uint64{program.FailedTimeout: 5, program.FailedFormat: 6},
		Series: []program.Series{
			{Name: "cost_eur_total", Counter: true, Labels: map[string]string{"team": "shop"}, Value: 0.5},
			{Name: "cost_eur_total", Counter: true, Labels: map[string]string{"team": "infra"}, Value: 0.75},
			{Name: "new_paths", Value: 3},
		}}
}

func ruleStates() []rule.State {
	return []rule.State{
		{Name: "team", Unit: "seconds", Sums: map[string]float64{"shop": 1.5, "in\nfra": 0.25}},
		{Name: "rubbish", Unit: "bytes", Sums: map[string]float64{"": 4096}},
		{Name: "objects", Unit: "count", Sums: map[string]float64{"": 17},
			Failures: map[string]uint64{rule.FailedCost: 4}},
		{Name: "json", Shares: map[string]float64{"": 0.125}, Failures: map[string]uint64{rule.FailedBusy: 1,
			rule.FailedTimeout: 2, rule.FailedError: 3}},
	}
}

func exporter(t *testing.T) *Exporter {
	t.Helper()
	e, err := New(fixed{}, &Options{MaxMethods: 3, Engines: engines, Events: allEvents, History: pastStats,
		Rules: ruleStates, Program: programState, Passwords: passwordResults, TLSFailures: func() uint64 { return 6 },
		Build: Build{Version: "1.2.3", Revision: "abcdef", GoVersion: "go1.26"}})
	if err != nil {
		t.Fatal(err)
	}
	p := window(0,
		testProcess{"shop", "hotspot", samples{
			"com.acme.Cart.total": 400, "java.util.HashMap.get": 300, "quo\"te\\d\n{}": 200, "com.acme.Cart.add": 100,
		}},
		testProcess{"shop", "", samples{"memcpy": 64}},
		testProcess{"cron.service", "", samples{"[unknown]": 32, "finish_task_switch": 3}},
		testProcess{"sshd", "", samples{"x": 1}},
	)
	p.Processes[0].Calls = []*profile.Calls{
		{Engine: "page", Basis: profile.Sampled, Graph: graph(map[string]float64{"com.acme.Cart.total": 40,
			"com.acme.Cart.add": 30, "java.util.HashMap.get": 20, "rare": 3})},
		{Engine: "branch", Basis: profile.Sampled, Graph: graph(map[string]float64{"com.acme.Cart.total": 5000,
			"com.acme.Cart.add": 6000})},
		{Engine: "hotspot", Basis: profile.Estimated, Graph: graph(map[string]float64{"com.acme.Cart.total": 1e6,
			"slight": 0.4})},
		{Engine: "hotspot", Basis: profile.Inferred, Graph: graph(map[string]float64{"com.acme.Cart.total": 2e6})},
	}
	p.Counts = profile.Counts{Folded: 1100, Truncated: map[string]uint64{"depth": 2, "unreadable": 1}, Stale: 5,
		Unknown: 6}
	p.Processes[0].Contexts = &profile.Contexts{Mode: profile.ContextChain, Walked: 401, Linked: 599, Ambiguous: 21,
		Fitted: 8, Unplaced: 15}
	p.Processes[0].Events = []*profile.Events{
		{Kind: profile.Exceptions, Rows: []profile.EventRow{{Values: [3]float64{40}}}},
		{Kind: profile.Allocations, Rows: []profile.EventRow{{Values: [3]float64{7, 1024.4}},
			{Values: [3]float64{1, 0.2}},
			{EventLabels: profile.EventLabels{What: profile.ExactAllocations}, Values: [3]float64{9, 1111}}}},
		{Kind: profile.Locks, Rows: []profile.EventRow{
			lock("spin", 250e6), lock("block", 1e9), lock("block", 500e6), lock("wait", 60e9), lock("enter", 0),
			lock("made up\n", 125e6),
		}},
		{Kind: profile.Cycles, Rows: []profile.EventRow{{Values: [3]float64{3, 4}}}},
		{Kind: profile.OffCPU, Rows: []profile.EventRow{
			{EventLabels: profile.EventLabels{Place: "blocked", What: "socket"}, Values: [3]float64{4, 750e6}},
			{EventLabels: profile.EventLabels{Place: "runnable", What: "runnable"}, Values: [3]float64{4, 125e6}},
		}},
		{Kind: profile.Wall, Rows: []profile.EventRow{
			{EventLabels: profile.EventLabels{Place: "running", What: "running"}, Values: [3]float64{500e6}},
			{EventLabels: profile.EventLabels{Place: "blocked", What: "socket"}, Values: [3]float64{750e6}},
		}},
	}
	p.Processes[1].Events = []*profile.Events{{Kind: profile.Pauses,
		Rows: []profile.EventRow{{Values: [3]float64{2, 31.25e6}}}}}
	e.Observe(p)
	return e
}

// lock is a row of locks.
func lock(what string, delay float64) profile.EventRow {
	return profile.EventRow{EventLabels: profile.EventLabels{What: what}, Values: [3]float64{0, 1, delay}}
}

// Engines do not take places from each other, as their numbers do not compare, and each one that
// there is has series.
func TestEnginesApart(t *testing.T) {
	e, err := New(fixed{}, &Options{MaxMethods: 1, MaxServices: 1, Engines: engines})
	if err != nil {
		t.Fatal(err)
	}
	p := window(0, testProcess{service: "shop", runtime: "hotspot"}, testProcess{service: "web"})
	var want []string
	for i, engine := range engines {
		// Each engine records ten times as many calls as the one before, the last ones of another
		// service.
		scale := math.Pow10(i)
		at, service, runtime := p.Processes[0], "shop", "hotspot"
		if i > 2 {
			at, service, runtime = p.Processes[1], "web", native
		}
		at.Calls = append(at.Calls, &profile.Calls{Engine: engine,
			Graph: graph(map[string]float64{engine + ".hot": 20 * scale, "rest": 10 * scale})})
		want = append(want,
			fmt.Sprintf(`{basis="sampled",engine="%s",method="(other)",runtime="%s",service="%s"} %v`, engine, runtime,
				service, 10*scale),
			fmt.Sprintf(`{basis="sampled",engine="%s",method="%s.hot",runtime="%s",service="%s"} %v`, engine, engine,
				runtime, service, 20*scale))
	}
	e.Observe(p)
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(e.Gatherer(), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for _, line := range strings.Split(rec.Body.String(), "\n") {
		if labels, ok := strings.CutPrefix(line, "vmprof_calls_total"); ok {
			got = append(got, labels)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("series\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// graph has these callees.
func graph(callees map[string]float64) *profile.Graph {
	g := new(profile.Graph)
	main := symbol.Intern(symbol.Frame{Function: "main", Kind: symbol.KindJIT})
	for name, n := range callees {
		g.Add(profile.Edge{Caller: main, Callee: symbol.Intern(symbol.Frame{Function: name, Kind: symbol.KindJIT})}, n)
	}
	return g
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(exporter(t).Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestExposition(t *testing.T) {
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(exporter(t).Gatherer(), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	// What the Go runtime and /testProcess say of this test is not ours to fix.
	got := regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?(go|process)_.*\n`).ReplaceAll(rec.Body.Bytes(), nil)
	golden(t, "testdata/exposition.txt", got)
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (rewrite with go test -update); got\n%s", file, got)
	}
}

// A panic over one metric is an error of the scrape, which has all others.
func TestCollectorPanics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	good := prometheus.NewCounter(prometheus.CounterOpts{Name: "good_total", Help: "Good."})
	bad := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bad_total", Help: "Bad."}, []string{"service"})
	for _, c := range []prometheus.Collector{good, panicking{bad}} {
		if err := r.Register(guarded{c}); err != nil {
			t.Fatal(err)
		}
	}
	families, err := r.Gather()
	if err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("error %v", err)
	}
	if len(families) != 1 || families[0].GetName() != "good_total" {
		t.Errorf("gathered %v", families)
	}
}

type panicking struct{ prometheus.Collector }

func (panicking) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("bad_total", "Bad.", []string{"service"}, nil),
		prometheus.CounterValue, 1, "\xff")
}

func passwordResults() map[string]uint64 {
	return map[string]uint64{"right": 1, "wrong": 2, "remembered": 3, "shared": 4, "refused": 5}
}
