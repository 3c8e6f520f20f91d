package prom

import (
	"bytes"
	"flag"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/metrics.md")

// fixed is a Source whose answers never change. Every number is another one, so that the golden file shows a mix-up.
type fixed struct{}

func (fixed) Counts() agent.Counts {
	return agent.Counts{
		Attempted: 1000, Delivered: 990, Dropped: map[string]uint64{"ring_full": 10, "no_memory": 0},
		Folded: 983, Discarded: map[string]uint64{"malformed": 4, "exited": 3},
		Idle: 5000, Filtered: 70,
	}
}

func (fixed) Stats() agent.Stats {
	return agent.Stats{
		Ready: true, Uptime: time.Hour,
		BPFTime: 1980 * time.Microsecond, BPFRuns: 1001, MapBytes: 9 << 20,
		RingSize: 8 << 20, RingBytes: 123456, ReaderLag: 80 * time.Millisecond,
		Processes: map[string]int{"": 41, "hotspot": 2}, Services: map[string]int{"shop": 2, "cron.service": 1}, Quarantined: 7,
		Reads: 8000, ReadFailures: map[string]uint64{"gone": 11, "timeout": 12},
		Frames: 30000, CodeLoads: 4321, EventsDropped: 12, MethodMaps: 5432, MethodMapsMax: 1 << 20,
	}
}

func exporter(t *testing.T) *Exporter {
	t.Helper()
	e, err := New(fixed{}, &Options{MaxMethods: 3, Build: Build{Version: "1.2.3", Revision: "abcdef", GoVersion: "go1.26"}})
	if err != nil {
		t.Fatal(err)
	}
	p := window(0,
		proc{"shop", "hotspot", samples{
			"com.acme.Cart.total": 400, "java.util.HashMap.get": 300, "quo\"te\\d\n{}": 200, "com.acme.Cart.add": 100,
		}},
		proc{"shop", "", samples{"memcpy": 64}},
		proc{"cron.service", "", samples{"[unknown]": 32, "finish_task_switch": 3}},
		proc{"sshd", "", samples{"x": 1}},
	)
	p.Counts = agent.Counts{Folded: 1100, Truncated: map[string]uint64{"depth": 2, "unreadable": 1}, Stale: 5, Unknown: 6}
	e.Observe(p)
	return e
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
	// What the Go runtime and /proc say of this test is not ours to fix.
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
