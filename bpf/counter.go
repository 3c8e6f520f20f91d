package bpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// A Counter counts something in the kernel, per CPU; enum counter in counter.h says what.
type Counter = ProfileCounter

// Counters.
const (
	SamplesAttempted        = ProfileCounterSAMPLES_ATTEMPTED
	SamplesDelivered        = ProfileCounterSAMPLES_DELIVERED
	SamplesDroppedRingFull  = ProfileCounterSAMPLES_DROPPED_RING_FULL
	SamplesDroppedNoScratch = ProfileCounterSAMPLES_DROPPED_NO_SCRATCH
	TicksIdle               = ProfileCounterTICKS_IDLE
	TicksFiltered           = ProfileCounterTICKS_FILTERED
	EventsAttempted         = ProfileCounterEVENTS_ATTEMPTED
	EventsDelivered         = ProfileCounterEVENTS_DELIVERED
	EventsDroppedRingFull   = ProfileCounterEVENTS_DROPPED_RING_FULL
	EventsDroppedBusy       = ProfileCounterEVENTS_DROPPED_BUSY
	NsTotal                 = ProfileCounterNS_TOTAL
	NsJava                  = ProfileCounterNS_JAVA
	SamplesJava             = ProfileCounterSAMPLES_JAVA
	FramesJava              = ProfileCounterFRAMES_JAVA
	RingBytes               = ProfileCounterRING_BYTES
	SegmentMisses           = ProfileCounterSEGMENT_MISSES
	StackCopies             = ProfileCounterSTACK_COPIES
	WordsScanned            = ProfileCounterWORDS_SCANNED
	WalksCut                = ProfileCounterWALKS_CUT
	CodeUnloads             = ProfileCounterCODE_UNLOADS
	CallsAttempted          = ProfileCounterCALLS_ATTEMPTED
	CallsDelivered          = ProfileCounterCALLS_DELIVERED
	CallsDroppedRingFull    = ProfileCounterCALLS_DROPPED_RING_FULL
	CallsDroppedNoDraft     = ProfileCounterCALLS_DROPPED_NO_DRAFT
	CallHits                = ProfileCounterCALL_HITS
	CallHitsRefused         = ProfileCounterCALL_HITS_REFUSED
	BurstsArmed             = ProfileCounterBURSTS_ARMED
	BurstsSkipped           = ProfileCounterBURSTS_SKIPPED
	NsCalls                 = ProfileCounterNS_CALLS
	SamplesLinked           = ProfileCounterSAMPLES_LINKED
	SamplesPartial          = ProfileCounterSAMPLES_PARTIAL
	StacksDisplaced         = ProfileCounterSTACKS_DISPLACED
	ProbeHits               = ProfileCounterPROBE_HITS
	NsProbes                = ProfileCounterNS_PROBES
	MethodsChanged          = ProfileCounterMETHODS_CHANGED
	HitsUnattached          = ProfileCounterHITS_UNATTACHED
	ThreadEndsDropped       = ProfileCounterTHREAD_ENDS_DROPPED
	ThreadsRefused          = ProfileCounterTHREADS_REFUSED
	WaitsSeen               = ProfileCounterWAITS_SEEN
	WaitsThinned            = ProfileCounterWAITS_THINNED
	WaitsSkipped            = ProfileCounterWAITS_SKIPPED
	WaitsRefused            = ProfileCounterWAITS_REFUSED
	NsWaitsDrawn            = ProfileCounterNS_WAITS_DRAWN
	NsWaitsLost             = ProfileCounterNS_WAITS_LOST
	WakingsSeen             = ProfileCounterWAKINGS_SEEN
	WakersDrawn             = ProfileCounterWAKERS_DRAWN
	WakersLost              = ProfileCounterWAKERS_LOST
	ProcessesRefused        = ProfileCounterPROCESSES_REFUSED
	UnwindFrames            = ProfileCounterUNWIND_FRAMES
	UnwindMisses            = ProfileCounterUNWIND_MISSES
	UnwindUntabled          = ProfileCounterUNWIND_UNTABLED
	UnwindStale             = ProfileCounterUNWIND_STALE
	UnwindGone              = ProfileCounterUNWIND_GONE
	UnwindUnsupported       = ProfileCounterUNWIND_UNSUPPORTED
	UnwindBroken            = ProfileCounterUNWIND_BROKEN
	UnwindRefused           = ProfileCounterUNWIND_REFUSED
	UnwindYoung             = ProfileCounterUNWIND_YOUNG

	ObservationsAttempted        = ProfileCounterOBSERVATIONS_ATTEMPTED
	ObservationsDelivered        = ProfileCounterOBSERVATIONS_DELIVERED
	ObservationsDroppedRingFull  = ProfileCounterOBSERVATIONS_DROPPED_RING_FULL
	ObservationsDroppedBusy      = ProfileCounterOBSERVATIONS_DROPPED_BUSY
	ObservationsDroppedTableFull = ProfileCounterOBSERVATIONS_DROPPED_TABLE_FULL

	tickCounters = ProfileCounterTICK_COUNTERS
	counterCount = ProfileCounterCOUNTER_COUNT
)

// Counts are all counters at one moment, summed over CPUs.
type Counts [counterCount]uint64

// ReadCounts reads all counters. While ticks arrive the sums of different counters can be off by
// those in flight.
func (o *Objects) ReadCounts() (Counts, error) {
	var c Counts
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return c, fmt.Errorf("read counters: %w", err)
	}
	perCPU := make([]uint64, int(counterCount)*cpus)
	if err := readAll(o.Counters, perCPU); err != nil {
		return c, fmt.Errorf("read counters: %w", err)
	}
	for i, n := range perCPU {
		c[i/cpus] += n
	}
	ticks := make([][tickCounters]uint64, o.TickCounts.MaxEntries())
	if err := readAll(o.TickCounts, ticks); err != nil {
		return c, fmt.Errorf("read counters of ticks: %w", err)
	}
	for _, of := range ticks {
		for i, n := range of {
			c[i] += n
		}
	}
	return c, nil
}

// A TickCost is what the samples of one CPU have cost.
type TickCost struct {
	Samples uint64 // attempted
	Time    time.Duration
}

// TickCosts reads what samples have cost, by CPU.
func (o *Objects) TickCosts() ([]TickCost, error) {
	ticks := make([][tickCounters]uint64, o.TickCounts.MaxEntries())
	if err := readAll(o.TickCounts, ticks); err != nil {
		return nil, fmt.Errorf("read counters of ticks: %w", err)
	}
	costs := make([]TickCost, len(ticks))
	for i, of := range ticks {
		costs[i] = TickCost{of[SamplesAttempted], time.Duration(of[NsTotal])}
	}
	return costs, nil
}

// readAll reads all values of an array, those of a per-CPU array one key after the other. It takes
// one system call: the counters are read several times a second.
func readAll[V any](m *ebpf.Map, values []V) error {
	var cursor ebpf.MapBatchCursor
	keys := make([]uint32, m.MaxEntries())
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) { // the latter with the last batch
		if n != len(keys) {
			return fmt.Errorf("%d of %d entries", n, len(keys))
		}
		return nil
	}
	if !errors.Is(err, ebpf.ErrNotSupported) { // by per-CPU arrays before Linux 5.13
		return err
	}
	return readEach(m, values)
}

// readEach is readAll with a system call for each key.
func readEach[V any](m *ebpf.Map, values []V) error {
	each := len(values) / int(m.MaxEntries())
	for i := range m.MaxEntries() {
		of := make([]V, each)
		out := any(&of)
		if m.Type() != ebpf.PerCPUArray {
			out = &of[0]
		}
		if err := m.Lookup(i, out); err != nil {
			return err
		}
		copy(values[int(i)*each:], of)
	}
	return nil
}
