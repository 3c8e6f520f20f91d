package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	table "github.com/vmprof-agent/vmprof-agent/tests/report"
)

var built profiler.Agent

func TestMain(m *testing.M) { harness.RunTests(m, &built) }

// A thread for each request, of the kernel and a virtual one: totals are right, or the status says
// that a part was not observed.
func TestServices(t *testing.T) {
	needs.Root(t, "recording")
	jdks := needs.JDKs(t)
	newest := jdks[len(jdks)-1]
	for _, name := range []string{"thread-per-request", "virtual"} {
		s := &services[slices.IndexFunc(services, func(s service) bool { return s.name == name })]
		if newest.Version < s.least {
			continue
		}
		t.Run(name, func(t *testing.T) {
			results, err := s.measure(t.Context(), built, newest, 3*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				t.Log(r.cells(name, newest))
				if !r.holds() {
					t.Errorf("%s: %v by the service, %v recorded, %s", r.kind, r.truth, r.printed, r.status)
				}
			}
		})
	}
}

// Waits for a lock that never end count up to the window's end, and the profile says who has the
// lock.
func TestStuck(t *testing.T) {
	needs.Root(t, "recording")
	const waiters = 10
	for _, jdk := range needs.JDKs(t) {
		g, err := (&service{name: "stuck"}).start(t.Context(), jdk)
		if err != nil {
			t.Fatal(err)
		}
		defer g.stop()
		if err := g.warm(t.Context(), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		recording, err := built.Record(t.Context(), profiler.Options{PID: g.pid(), Duration: 2 * time.Second,
			Extra: []string{"-e", "lock"}})
		if err != nil {
			t.Fatal(err)
		}
		p := recording.Profile
		delay, _, _ := (&kind{column: "delay", under: "Services.wanted"}).sum(p)
		// Waits are known from when the agent lists the threads that wait: soon after it has
		// attached.
		if all := float64(waiters * p.DurationNanos); delay < 0.7*all || delay > 1.01*all {
			t.Errorf("JDK %d: %d threads waited for %v in %v\n%s", jdk.Version, waiters, time.Duration(delay),
				time.Duration(p.DurationNanos), recording.Output)
		}
		held := int64(0)
		for _, s := range p.Sample {
			if h := s.Label[stored.LabelHolder]; len(h) > 0 && strings.HasPrefix(h[0], "Services.") {
				held++
			}
		}
		if held == 0 {
			t.Errorf("JDK %d: nobody has the lock\n%s", jdk.Version, recording.Output)
		}
		if strings.Contains(recording.Output, "No lock events") {
			t.Errorf("JDK %d:\n%s", jdk.Version, recording.Output)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, test := range []struct {
		r    result
		want bool
	}{
		{result{unit: stored.UnitTime, truth: 1e9, printed: 1.04e9, status: "status: good"}, true},
		{result{unit: stored.UnitTime, truth: 1e9, printed: 1.2e9, status: "status: good"}, false},
		{result{unit: stored.UnitTime, truth: 1e9, printed: 1.2e9, low: 0.9e9, high: 1.5e9, status: "status: good"},
			true},
		{result{unit: stored.UnitTime, truth: 1e9, printed: 0, status: "status: nothing observed: the"}, true},
		{result{unit: stored.UnitTime, truth: 1e9, printed: 0, status: "status: good: 0 events"}, false},
	} {
		if got := test.r.holds(); got != test.want {
			t.Errorf("%+v: %v", test.r, got)
		}
	}
}

// The page has a place for what is measured.
func TestMarkers(t *testing.T) {
	for _, name := range []string{"services", "pool recording"} {
		if _, err := table.Section("../../"+docs, name); err != nil {
			t.Error(err)
		}
	}
}
