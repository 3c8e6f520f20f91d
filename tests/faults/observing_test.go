package faults

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

var observingRows = []Row{
	{
		Fault: "a nearly idle JVM allocates",
		Holds: "Its allocations are recorded all the time, because each kind of events may use 0.2 % of one CPU. The " +
			"sum is within the interval in the profile.",
		Test: func(t *testing.T) { recordIdle(t, false, "-XX:TLABSize=64k") },
	},
	{
		Fault: "a nearly idle JVM passes a probe more often than the budget allows",
		Holds: "The probe is attached in random slices of time. The profile shows the observed part of the time. The " +
			"sum, scaled to the whole time, is within the interval in the profile.",
		Test: func(t *testing.T) { recordIdle(t, true, "-XX:TLABSize=2k", "-XX:MinTLABSize=2k") },
	},
	{
		Fault: "a process works in bursts while its events are observed in slices of time",
		Holds: "Estimates are right on average, and the interval in the profile contains the truth in about 95 " +
			"of 100 cases.",
		Elsewhere: []string{"agent/collect/fold.TestCoverageUnbiased"},
	},
	{
		Fault: "no CPU time of a process was measured yet",
		Holds: "Its probes stay attached. Until a CPU time is measured, the budget assumes that the process uses " +
			"one CPU.",
		Elsewhere: []string{"agent/collect/events/probes.TestTuneUnmeasured"},
	},
}

// recordIdle records the allocations of a JVM that is nearly idle, and compares them with its own
// count.
func recordIdle(t *testing.T, slices bool, flags ...string) {
	needs.Root(t, "recording allocations")
	jdks := needs.JDKs(t)
	guest, err := events.Start(t.Context(), jdks[len(jdks)-1], events.Allocating, flags...)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	extra := []string{"-e", "alloc"}
	if slices {
		extra = append(extra, "--budget=0.5%") // the least that a process may use is 0.3 of a CPU's budget
	}
	var truth float64
	rounds := 0
	recording, err := built.While(t.Context(), profiler.Options{PID: guest.PID(), Frequency: 99, Extra: extra},
		(*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error {
			for end := time.Now().Add(time.Duration(times(12, 30)) * time.Second); time.Now().Before(end); rounds++ {
				one, err := guest.Run(1, 20_000) // some 3 MB
				if err != nil {
					return err
				}
				for _, a := range one.Allocations {
					truth += float64(a.Bytes)
				}
				time.Sleep(200 * time.Millisecond) // It leaves the guest idle.
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	all, err := events.Read(recording.Profile, "alloc_objects", "alloc_space")
	if err != nil {
		t.Fatal(err)
	}
	rows := events.Own(all)
	const bytes = 1
	got, variance := events.Sum(rows, bytes), 0.0
	for _, row := range rows {
		variance += row.Values[bytes] * row.Values[bytes] / max(float64(row.Count), 1)
	}
	share, scaled, within := observedOf(t, recording.Profile)
	// The interval is that of all allocations of the process; nearly all of them are the program's
	// own. A 95 % interval misses one time in twenty: twice its width hardly ever does.
	half := 2 * math.Hypot(1.96*math.Sqrt(variance), within)
	t.Logf("%d rounds: %.4g bytes ± %.2g of %.4g, from %d events; observed %.0f %% of the time", rounds, got, half,
		truth, events.Count(rows), share)
	if math.Abs(got-truth) > half {
		t.Errorf("%.4g bytes ± %.2g, %.4g in truth:\n%s", got, half, truth,
			strings.Join(recording.Profile.Comments, "\n"))
	}
	if scaled != slices {
		t.Errorf("observed %.0f %% of the time:\n%s", share, strings.Join(recording.Profile.Comments, "\n"))
	}
}

// observedOf returns the percentage of the time that was observed according to a profile, and half
// of the interval that follows from it.
func observedOf(t *testing.T, p *profile.Profile) (share float64, scaled bool, within float64) {
	t.Helper()
	m, err := stored.MetadataOf(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Totals {
		if total := &m.Totals[i]; total.Partial() && !math.IsInf(float64(total.Within), 1) {
			return 100 * total.Observed.Seconds() / total.Time.Seconds(), true, float64(total.Within)
		}
	}
	return 100, false, 0
}
