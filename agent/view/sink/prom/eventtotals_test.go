package prom

import (
	"fmt"
	"maps"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// totals are the series of services' events that e shows.
func totals(e *Exporter) map[string]string {
	series := make(map[string]string)
	for key, value := range allSeries(e) {
		if strings.HasPrefix(key, "vmprof_allocated_") || strings.HasPrefix(key, "vmprof_lock_") ||
			strings.HasPrefix(key, "vmprof_stopped_") {
			series[key] = value
		}
	}
	return series
}

// allSeries are all that e shows, with their values.
func allSeries(e *Exporter) map[string]string {
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(e.Gatherer(), promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	series := make(map[string]string)
	for _, line := range strings.Split(rec.Body.String(), "\n") {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			series[line[:i]] = line[i+1:]
		}
	}
	return series
}

// Services beyond the places are in (other), so that the sum stays true, and kinds of locks are
// bounded.
func TestEventsBounded(t *testing.T) {
	e, err := New(fixed{}, &Options{MaxServices: 2, Events: allEvents})
	if err != nil {
		t.Fatal(err)
	}
	var procs []testProcess
	for i := range 5 {
		procs = append(procs, testProcess{service: fmt.Sprint("s", i)})
	}
	for n := range 2 {
		p := window(n, procs...)
		for i, pr := range p.Processes {
			size := math.Pow(10, float64(i))
			locks := &profile.Events{Kind: profile.Locks}
			for j := range 10 {
				locks.Rows = append(locks.Rows, lock(fmt.Sprint("kind", j), 1e9*size))
			}
			pr.Events = []*profile.Events{{Kind: profile.Allocations,
				Rows: []profile.EventRow{{Values: [3]float64{1, size}}}}, locks}
		}
		e.Observe(p)
	}
	got := totals(e)
	want := map[string]string{
		`vmprof_allocated_bytes_total{service="s4"}`:                        "20000",
		`vmprof_allocated_bytes_total{service="s3"}`:                        "2000",
		`vmprof_allocated_bytes_total{service="(other)"}`:                   "222",
		`vmprof_lock_delay_seconds_total{kind="(other)",service="s4"}`:      "200000",
		`vmprof_lock_delay_seconds_total{kind="(other)",service="s3"}`:      "20000",
		`vmprof_lock_delay_seconds_total{kind="(other)",service="(other)"}`: "2220",
	}
	if !maps.Equal(got, want) {
		t.Errorf("series\n%q\nwant\n%q", got, want)
	}
}

// Estimates that are no numbers of anything do not let a counter go back.
func TestEventUsageOfNonsense(t *testing.T) {
	for value, want := range map[float64]uint64{1.5: 2, 0.4: 0, -1: 0, math.Inf(1): 0, math.NaN(): 0, 1e300: 0} {
		if got := whole(value); got != want {
			t.Errorf("whole(%v) = %d, want %d", value, got, want)
		}
	}
}
