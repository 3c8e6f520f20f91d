package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

const (
	// pauseRounds is the number of rounds of each thread, of 64 MB of garbage each.
	pauseRounds = 100
	// pauseTolerance is the permitted difference between the recorded pauses and the JVM's own log.
	pauseTolerance = 0.01
	// probed is the additional error of a pause's time: the probe that names the operation is hit
	// within it, and the two at its ends are not hit exactly when the JVM reads its clock. A hit
	// takes half that long.
	probed = time.Microsecond
)

// measurePauses records a program that causes safepoint pauses; the JVM's log is the truth.
func (t eventTrial) measurePauses(ctx context.Context, m meter) ([]figure, error) {
	log := filepath.Join(m.dir, fmt.Sprintf("safepoints-%d-%s.log", t.jdk.Version, t.setting))
	guest, err := events.Start(ctx, t.jdk, events.Pausing, events.SafepointFlag(log), "-XX:+Use"+t.setting+"GC")
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	if _, err := guest.Run(t.threads, pauseRounds/10); err != nil {
		return nil, err
	}
	recording, err := m.recordWork(ctx, guest.PID(), func() error {
		_, err := guest.Run(t.threads, pauseRounds)
		return errors.Join(err, settle(ctx, log))
	}, "-e", "safepoint")
	if err != nil {
		return nil, err
	}
	logged, err := readSafepoints(log)
	if err != nil {
		return nil, err
	}
	began := time.Unix(0, recording.Profile.TimeNanos)
	logged = events.Between(logged, began, began.Add(time.Duration(recording.Profile.DurationNanos)))
	rows, err := events.Read(recording.Profile, "pauses", "stopped")
	if err != nil {
		return nil, err
	}
	return judgePauses(logged, rows), nil
}

// settle waits until nothing more is logged: concurrent collections continue after the program is
// done, and one of their safepoints at the end of the recording would be on one side only.
func settle(ctx context.Context, log string) error {
	const still, limit = 500 * time.Millisecond, 10 * time.Second
	began, since, n := time.Now(), time.Now(), -1
	return wait.Until(ctx, wait.Long, "the JVM's log is complete", func() (bool, error) {
		safepoints, err := readSafepoints(log)
		if len(safepoints) != n {
			since, n = time.Now(), len(safepoints)
		}
		return time.Since(since) >= still || time.Since(began) >= limit, err
	})
}

func readSafepoints(path string) ([]events.Safepoint, error) {
	log, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the JVM's log: %w", err)
	}
	defer log.Close()
	return events.ReadSafepoints(log)
}

// loggedNames are the names in the log of operations that Shenandoah names differently at the probe
// (src/hotspot/share/gc/shenandoah/shenandoahVMOperations.hpp): the log has names of types, the
// probe of operations.
var loggedNames = map[string]string{
	"Shenandoah Init Marking":                    "ShenandoahInitMark",
	"Shenandoah Final Mark and Start Evacuation": "ShenandoahFinalMarkStartEvac",
	"Shenandoah Final Roots":                     "ShenandoahFinalRoots",
	"Shenandoah Init Update References":          "ShenandoahInitUpdateRefs",
	"Shenandoah Final Update References":         "ShenandoahFinalUpdateRefs",
	"Shenandoah Full GC":                         "ShenandoahFullGC",
	"Shenandoah Degenerated GC":                  "ShenandoahDegeneratedGC",
}

// judgePauses requires as many safepoints as the JVM logged, of the same duration, for the same
// operations.
func judgePauses(logged []events.Safepoint, rows []events.Row) (figures []figure) {
	// For each operation: how many times, and how long in milliseconds.
	times, stopped := events.Weights{}, events.Weights{}
	recordedTimes, recordedStopped := events.Weights{}, events.Weights{}
	for _, s := range logged {
		times[s.Operation]++
		stopped[s.Operation] += millis(s.Total)
	}
	for _, row := range rows {
		name := cmp.Or(loggedNames[row.Kind], row.Kind)
		recordedTimes[name] += row.Values[0]
		recordedStopped[name] += row.Values[1] / 1e6
	}
	time := func(group, what string, truth, measured, times float64) {
		figures = append(figures, figure{
			group: group, what: what, unit: "ms", aim: true, truth: truth, measured: measured,
			tolerance: within(pauseTolerance, truth) + times*millis(probed),
		})
	}
	time("stopped", "", stopped.Total(), recordedStopped.Total(), times.Total())
	figures = append(figures, figure{
		group: "pauses", aim: true, truth: times.Total(), measured: recordedTimes.Total(),
		tolerance: within(pauseTolerance, times.Total()),
	}, figure{
		group: "operations, overlap", unit: "%", aim: true, truth: 100, measured: recordedTimes.Overlap(times),
		tolerance: 100 * pauseTolerance,
	})
	for _, name := range slices.Sorted(maps.Keys(stopped)) {
		time("stopped for", name, stopped[name], recordedStopped[name], times[name])
	}
	return figures
}
