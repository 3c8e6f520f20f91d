package tests

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/paced"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// The CPU time of a program that sleeps often is what its own clock counted, also that of threads
// that ended before they were sampled, and units have their part of it.
func TestRecordPaced(t *testing.T) {
	needs.Root(t, "sampling")
	for _, test := range []struct {
		hz    int
		order paced.Order
	}{
		{999, paced.Order{Units: 1500, Length: 110 * time.Microsecond, Rate: 1500}},
		{3999, paced.Order{Units: 4000, Length: 20 * time.Microsecond, Rate: 3000}},
		{999, paced.Order{Units: 1000, Length: 200 * time.Microsecond, Rate: 800, OwnThreads: true}},
	} {
		guest, err := paced.Start(t.Context())
		if errors.Is(err, paced.ErrNoCompiler) && os.Getenv("CI") != "true" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		before, err := guest.Do(paced.Order{Rate: 1})
		if err != nil {
			t.Fatal(err)
		}
		var truth paced.Truth
		recording, err := built.While(t.Context(), profiler.Options{PID: guest.PID(), Frequency: test.hz},
			(*profiler.AgentRun).WaitSampling, func(*profiler.AgentRun) error {
				truth, err = guest.Do(test.order)
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
		if err := guest.Close(); err != nil {
			t.Error(err)
		}
		all, err := paced.Measure(recording.Profile, "")
		if err != nil {
			t.Fatal(err)
		}
		units, err := paced.Measure(recording.Profile, paced.Unit)
		if err != nil {
			t.Fatal(err)
		}
		used := truth.Process - before.Process
		name := strconv.Itoa(test.hz) + " Hz, units of " + test.order.Length.String()
		t.Logf("%s: %v of CPU time, in truth %v; %d samples; in units %v", name, all.CPU, used, all.Samples, units.CPU)
		// The guest reads its clock before it answers and sleeps, and the kernel counts the time of
		// a thread that ends after its clock can be read.
		off, most := paced.Off(used, all.CPU), 0.01
		if test.order.OwnThreads {
			most = 0.1
		}
		if off < -0.01 || off > most {
			t.Errorf("%s: CPU time is off by %+.1f %%", name, 100*off)
		}
		// Samples are as many as chance has it.
		most = 4 * paced.Chance(all.Samples)
		if off := paced.Off(all.CPU, time.Duration(all.Samples)*time.Second/time.Duration(test.hz)); off > most &&
			!test.order.OwnThreads {
			t.Errorf("%s: samples alone stand for %+.1f %% more than %v", name, 100*off, all.CPU)
		}
		if off, most := paced.Off(truth.Units, units.CPU), 0.1+4*paced.Chance(units.Samples); off < -most ||
			off > most {
			t.Errorf("%s: units are off by %+.1f %%, more than %.1f %%", name, 100*off, 100*most)
		}
	}
}
