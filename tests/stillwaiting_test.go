package tests

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// Threads that do not go on while somebody records have their whole stacks, and all of the
// recording's time.
func TestRecordStillWaiting(t *testing.T) { onEveryJDK(t, recordStillWaiting) }

func recordStillWaiting(t *testing.T, jdk jvm.JDK) {
	guest := startEvents(t, jdk, events.Away)
	if _, err := guest.Run(1, 50); err != nil { // Now its main thread waits for orders.
		t.Fatal(err)
	}
	o := profiler.Options{PID: guest.PID(), Frequency: frequency, Extra: []string{"-e", "offcpu"}}
	recording, err := built.While(t.Context(), o, (*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error {
		time.Sleep(time.Second) // at least: stacks are read of waits of 0.1 s and longer
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := recording.Profile
	rows := rowsOf(t, p, "waits", "offcpu")
	const offCPU = 1
	main := events.Sum(events.Where(rows, func(r events.Row) bool {
		return r.Has("guest.Steered.main") &&
			r.Cause == "pipe"
	}), offCPU)
	if of := float64(p.DurationNanos); main < 0.9*of || main > 1.01*of {
		t.Errorf("the main thread waited for orders for %v of %v", time.Duration(main), time.Duration(of))
		logRows(t, rows)
	}
	all, unknown := events.Sum(rows, offCPU), events.Sum(events.Where(rows,
		func(r events.Row) bool { return r.Has("[still waiting]") }), offCPU)
	t.Logf("%v in all, of that %v without a stack", time.Duration(all), time.Duration(unknown))
	if unknown > 0.02*all {
		t.Errorf("of %v, %v are without a stack", time.Duration(all), time.Duration(unknown))
	}
}
