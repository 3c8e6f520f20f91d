package prom

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// recording is a Source for an agent that does not record everything.
type recording struct {
	fixed
	stats profile.Stats
}

func (r recording) Stats() profile.Stats { return r.stats }

// What is not recorded has no series, not even with zeros: who reads zero CPU seconds would take
// the machine for idle. What is recorded has its accounts before anything happens.
func TestOnlyWhatIsRecorded(t *testing.T) {
	var (
		ofTicks = []string{"vmprof_samples_", "vmprof_sample_contexts_", "vmprof_kept_stacks_", "vmprof_ticks_",
			"vmprof_ring_received_", "vmprof_bpf_sample_"}
		ofTime = []string{"vmprof_cpu_seconds_total", "vmprof_methods_folded", "vmprof_services_folded",
			"vmprof_frames_"}
		ofCalls  = []string{"vmprof_call_samples_", "vmprof_call_hits_", "vmprof_calling_services_folded"}
		accounts = []string{"vmprof_event_samples_", "vmprof_event_hits_", "vmprof_event_cost_"}
		totals   = []string{"vmprof_allocated_bytes_total", "vmprof_lock_delay_seconds_total",
			"vmprof_stopped_seconds_total", "vmprof_offcpu_seconds_total", "vmprof_wall_seconds_total",
			"vmprof_exceptions_total"}
	)
	events := func(kinds ...profile.EventKind) (on [profile.EventKinds]bool) {
		for _, kind := range kinds {
			on[kind] = true
		}
		return on
	}
	for _, tt := range []struct {
		name    string
		stats   profile.Stats
		options Options
		want    []string // prefixes of series, of those above
	}{
		{"time", profile.Stats{Ticks: true, Time: true}, Options{}, slices.Concat(ofTicks, ofTime)},
		{"calls", profile.Stats{Ticks: true, Calls: &profile.CallStats{}}, Options{NoTime: true, Engines: engines},
			slices.Concat(ofTicks, ofCalls)},
		{"allocations", profile.Stats{Events: &profile.EventStats{}},
			Options{NoTime: true, Events: events(profile.Allocations)}, append(totals[:1:1], accounts...)},
		{"values", profile.Stats{Events: &profile.EventStats{}}, Options{NoTime: true, Events: events(profile.Values)},
			accounts},
		{"locks and pauses", profile.Stats{Events: &profile.EventStats{}},
			Options{NoTime: true, Events: events(profile.Locks, profile.Pauses)}, slices.Concat(totals[1:3], accounts)},
		{"off-CPU time", profile.Stats{Events: &profile.EventStats{}},
			Options{NoTime: true, Events: events(profile.OffCPU)}, append(totals[3:4:4], accounts...)},
		{"wall time", profile.Stats{Ticks: true, Time: true, Events: &profile.EventStats{}},
			Options{Events: events(profile.Wall)}, slices.Concat(ofTicks, ofTime, totals[4:5], accounts)},
		{"exceptions", profile.Stats{Events: &profile.EventStats{}},
			Options{NoTime: true, Events: events(profile.Exceptions)}, slices.Concat(totals[5:], accounts)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := New(recording{stats: tt.stats}, &tt.options)
			if err != nil {
				t.Fatal(err)
			}
			p := window(0, testProcess{"shop", "hotspot", samples{"com.acme.Cart.total": 400}})
			p.Processes[0].Events = []*profile.Events{
				{Kind: profile.Allocations, Rows: []profile.EventRow{{Values: [3]float64{1, 64}}}},
				{Kind: profile.Locks, Rows: []profile.EventRow{lock("block", 1e9)}},
				{Kind: profile.Pauses, Rows: []profile.EventRow{{Values: [3]float64{1, 1e9}}}},
				{Kind: profile.OffCPU, Rows: []profile.EventRow{{EventLabels: profile.EventLabels{What: "socket"},
					Values: [3]float64{1, 1e9}}}},
				{Kind: profile.Exceptions, Rows: []profile.EventRow{{Values: [3]float64{1}}}},
				{Kind: profile.Wall, Rows: []profile.EventRow{{EventLabels: profile.EventLabels{What: "running"},
					Values: [3]float64{1e9}}}},
			}
			p.Counts.Truncated = map[string]uint64{"depth": 1}
			p.Processes[0].Contexts = &profile.Contexts{Mode: profile.ContextChain}
			e.Observe(p)
			series := allSeries(e)
			for _, prefix := range slices.Concat(ofTicks, ofTime, ofCalls, accounts, totals) {
				var found []string
				for key := range maps.Keys(series) {
					if strings.HasPrefix(key, prefix) {
						found = append(found, key)
					}
				}
				if (len(found) > 0) != slices.Contains(tt.want, prefix) {
					t.Errorf("of %s… there is %q, want only %q", prefix, found, tt.want)
				}
			}
			for _, name := range []string{"vmprof_ready", "vmprof_windows_total", "vmprof_ring_size_bytes"} {
				if series[name] == "" {
					t.Errorf("no %s", name)
				}
			}
		})
	}
}
