package main

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

// loggedNames are the names in the log of operations that Shenandoah calls otherwise where the probe is
// (src/hotspot/share/gc/shenandoah/shenandoahVMOperations.hpp): the log has names of types, the probe of operations.
var loggedNames = map[string]string{
	"Shenandoah Init Marking":                    "ShenandoahInitMark",
	"Shenandoah Final Mark and Start Evacuation": "ShenandoahFinalMarkStartEvac",
	"Shenandoah Final Roots":                     "ShenandoahFinalRoots",
	"Shenandoah Init Update References":          "ShenandoahInitUpdateRefs",
	"Shenandoah Final Update References":         "ShenandoahFinalUpdateRefs",
	"Shenandoah Full GC":                         "ShenandoahFullGC",
	"Shenandoah Degenerated GC":                  "ShenandoahDegeneratedGC",
}

// judgePauses wants as many safepoints as the JVM has logged, which stopped it for as long, for the same operations.
func judgePauses(logged []events.Safepoint, rows []events.Row) (figures []figure) {
	// Of each operation: how many times, and how long in milliseconds.
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
