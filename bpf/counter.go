package bpf

import "fmt"

// A Counter counts something in the kernel, per CPU; enum counter in event.h says what.
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
	ThreadsRefused          = ProfileCounterTHREADS_REFUSED
	ProcessesRefused        = ProfileCounterPROCESSES_REFUSED

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

// ReadCounts reads all counters. While ticks arrive the sums of different counters can be off by those in flight.
func (o *Objects) ReadCounts() (Counts, error) {
	var c Counts
	var perCPU []uint64
	for i := range c {
		if err := o.Counters.Lookup(uint32(i), &perCPU); err != nil {
			return c, fmt.Errorf("read counter %d: %w", i, err)
		}
		for _, n := range perCPU {
			c[i] += n
		}
	}
	for cpu := range o.TickCounts.MaxEntries() {
		var ticks [tickCounters]uint64
		if err := o.TickCounts.Lookup(cpu, &ticks); err != nil {
			return c, fmt.Errorf("read counters of CPU %d: %w", cpu, err)
		}
		for i, n := range ticks {
			c[i] += n
		}
	}
	return c, nil
}
