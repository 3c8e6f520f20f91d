package tests

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A guest's own probe-NOPs are read each time: which slots its threads take, and that they give
// back the same.
func TestRecordProbeNOPs(t *testing.T) {
	const begins, ends = "usdt:vmprof:thread=arg1", "usdt:vmprof:thread_end=arg1"
	const threads = 3 // beside the main one, which is there before
	g := startVM(t, "threaded")
	run, err := built.Start(t.Context(), profiler.Options{
		PID: g.Pid(), Frequency: frequency, Extra: []string{"-e", "value", "--probe", begins + "/1", "--probe", ends +
			"/1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitAttached(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(1); err != nil {
		t.Fatal(err)
	}
	recording, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		t.Error(err)
	}
	rows := rowsOf(t, recording.Profile, "executions", "sum")
	slots := map[string]float64{}
	for probe, function := range map[string]string{begins: "vmprof_thread_begin", ends: "vmprof_thread_end"} {
		of := events.Where(rows, func(r events.Row) bool { return r.Probe == probe && r.Has(function) })
		if n := events.Sum(of, 0); n != threads {
			t.Errorf("%s: %.0f times in %s, want %d", probe, n, function, threads)
		}
		slots[probe] = events.Sum(of, 1)
	}
	if slots[begins] != slots[ends] || slots[begins] < threads { // the first slot is the main thread's
		t.Errorf("slots that were taken and given back add up to %v", slots)
	}
	if all := events.Sum(rows, 0); all != 2*threads {
		t.Errorf("%.0f executions in all, want %d", all, 2*threads)
	}
}
