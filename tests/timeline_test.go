package tests

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// The lane of a thread shows what the thread says itself, at each time.
func TestRecordTimeline(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) {
		for _, kind := range []string{"wall", "offcpu"} {
			t.Run(kind, func(t *testing.T) { recordTimeline(t, jdk, kind) })
		}
	})
}

func recordTimeline(t *testing.T, jdk jvm.JDK, kind string) {
	guest := startEvents(t, jdk, events.Stages)
	if _, err := guest.Run(1, 1); err != nil {
		t.Fatal(err)
	}
	const rounds = 4
	p, truth := recordEvents(t, guest, kind, 1, rounds, "--budget=50%")
	booted := time.Now().Add(-proc.Monotonic()) // when CLOCK_MONOTONIC began
	m, err := stored.MetadataOf(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Lanes) != 1 || len(truth.Stages) != 3*rounds {
		t.Fatalf("lanes of %d processes, %d stages", len(m.Lanes), len(truth.Stages))
	}
	lanes := &m.Lanes[0]
	steps := laneOf(t, lanes, "worker-0")
	// A stage shares its first and its last step with others: no cause counts for more than what the step has of the stage.
	var all, right, delayed float64
	for _, stage := range truth.Stages {
		own, runnable := 0.0, 0.0
		from, until := booted.Add(stage.From).Sub(lanes.Start), booted.Add(stage.Until).Sub(lanes.Start)
		for i, shares := range steps {
			begin := time.Duration(i) * lanes.Step
			overlap := float64(min(until, begin+lanes.Step) - max(from, begin))
			if overlap <= 0 {
				continue
			}
			has := func(cause string) float64 { return min(shares[cause]*float64(lanes.Step), overlap) }
			own = own + min(has(stage.Cause)+has(also[stage.Cause]), overlap)
			runnable += min(has("runnable")+has("throttled"), max(overlap-has(stage.Cause)-has(also[stage.Cause]), 0))
		}
		length := float64(stage.Until - stage.From)
		t.Logf("%s for %v: %.1f %%, of that %.1f %% waiting for a CPU", stage.Cause, stage.Until-stage.From, 100*(own+runnable)/length, 100*runnable/length)
		all, right, delayed = all+length, right+own, delayed+runnable
		if stage.Cause != "running" && own < length/2 { // other threads have no part in how long it waits
			t.Errorf("%s is in %.1f %% of its stage", stage.Cause, 100*own/length)
		}
	}
	if right+delayed < 0.95*all {
		t.Errorf("%.1f %% of the time has the right cause, at steps of %v", 100*(right+delayed)/all, lanes.Step)
	}
	if right == 0 {
		t.Error("the thread only waited for a CPU")
	}
}

// laneOf returns the shares of causes by step, of the thread of that name with the longest lane.
func laneOf(t *testing.T, l *stored.Lanes, thread string) (steps []map[string]float64) {
	t.Helper()
	for i := range l.Threads {
		lane := &l.Threads[i]
		if lane.Thread != thread {
			continue
		}
		runs, err := lane.Steps(len(l.Causes), l.Steps)
		if err != nil {
			t.Fatal(err)
		}
		of := make([]map[string]float64, lane.From)
		for _, run := range runs {
			shares := map[string]float64{}
			for _, part := range run.Parts {
				shares[l.CauseName(part.Cause)] = float64(part.Percent) / 100
			}
			for range run.Steps {
				of = append(of, shares)
			}
		}
		if len(of) > len(steps) {
			steps = of
		}
	}
	if steps == nil {
		t.Fatalf("%s has no lane among %d", thread, len(l.Threads))
	}
	return steps
}
