package self

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcPercent trades a little CPU time for memory: an agent that is always on should be small.
	gcPercent = 50
	// gcRoom is how much a small heap may grow between two collections, in bytes. By gcPercent
	// alone an agent that starts, with a few megabytes, would collect every few milliseconds.
	gcRoom = 16 << 20
	// mostPercent is what leaves gcRoom to a heap of next to nothing: the runtime takes it of 4 MB
	// at least (heapMinimum, runtime/mgcpacer.go).
	mostPercent = gcRoom * 100 / (4 << 20)
)

// PaceCollector sets how much the heap grows between two collections: by gcPercent, but gcRoom at
// least. GOGC in the environment overrides that. The room is adapted after each collection.
func PaceCollector() {
	if os.Getenv("GOGC") != "" {
		return
	}
	p := &collectorPace{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.adapt()
}

// A collectorPace is what the last adaption of the collector's pace was.
type collectorPace struct {
	live    []metrics.Sample
	percent int
}

// adapt adapts the pace to the heap that the last collection left, and sees to it that this happens
// after the next one.
func (p *collectorPace) adapt() {
	metrics.Read(p.live)
	if percent := pacePercent(p.live[0].Value.Uint64()); percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
	sentinel := new([16]byte) // not tiny: those share memory with others, and may never go
	runtime.AddCleanup(sentinel, (*collectorPace).adapt, p)
}

// pacePercent is by how much a heap of that size may grow. It is rounded, as each change of it
// stops the program for a moment.
func pacePercent(live uint64) int {
	percent := mostPercent
	if live > 0 {
		percent = int(min(gcRoom*100/live, mostPercent))
	}
	return max(percent&^15, gcPercent)
}
