package javaheap

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Schema leads to the heap and its generations. Only the bounds are required: a heap of unknown
// generations is of use.
type Schema struct {
	Heap                     uint64          // static CollectedHeap*
	reserved, start, words   vmstructs.Field // fields of CollectedHeap: a MemRegion, which has the other two
	youngGen                 vmstructs.Field // field of Serial's heap: Generation*
	generation               vmstructs.Field // field of Generation: MemRegion
	parallelYoung            uint64          // static PSYoungGen*
	parallelGeneration       vmstructs.Field // field of PSYoungGen: MemRegion
	regionTable, regionShift vmstructs.Field // fields of G1CollectedHeap, through its HeapRegionManager
	regionTag                vmstructs.Field // field of HeapRegion
	// Collections and Collecting are fields of CollectedHeap, which the VM may not show: the number
	// of collections that have begun, and whether one stops the program.
	Collections, Collecting vmstructs.Field
	edenTag, survivorTag    uint32
	oldMask, humongousMask  uint32
}

// NewSchema looks up the fields of the heap of each collector. What is missing of the bounds is in
// r.Err.
func NewSchema(r *vmstructs.Resolver) Schema {
	within := func(outer, inner vmstructs.Field) vmstructs.Field {
		return vmstructs.Field{Offset: outer.Offset + inner.Offset, Width: inner.Width, Known: outer.Known &&
			inner.Known}
	}
	tag := func(name string) uint32 {
		return uint32(r.Constant("G1HeapRegionType::"+name, "HeapRegionType::"+name))
	}
	regions := within(r.Optional("G1CollectedHeap._hrm"),
		r.Optional("G1HeapRegionManager._regions", "HeapRegionManager._regions"))
	s := Schema{
		Heap:     r.Static("Universe._collectedHeap"),
		reserved: r.Field("CollectedHeap._reserved"),
		start:    r.Field("MemRegion._start"),
		words:    r.Field("MemRegion._word_size"),
		// JDK 8 has an array of two generations there, the young one first.
		youngGen: r.Optional("SerialHeap._young_gen", "GenCollectedHeap._young_gen",
			"GenCollectedHeap._gens"),
		generation:         r.Optional("Generation._reserved"),
		parallelYoung:      r.OptionalStatic("ParallelScavengeHeap._young_gen"),
		parallelGeneration: r.Optional("PSYoungGen._reserved"),
		regionTable:        within(regions, r.Optional("G1HeapRegionTable._biased_base")),
		regionShift:        within(regions, r.Optional("G1HeapRegionTable._shift_by")),
		Collections:        r.Optional("CollectedHeap._total_collections"),
		Collecting:         r.Optional("CollectedHeap._is_stw_gc_active", "CollectedHeap._is_gc_active"),
		regionTag: within(r.Optional("G1HeapRegion._type", "HeapRegion._type"),
			r.Optional("G1HeapRegionType._tag", "HeapRegionType._tag")),
		edenTag:       tag("EdenTag"),
		survivorTag:   tag("SurvTag"),
		oldMask:       tag("OldMask"),
		humongousMask: tag("HumongousMask"),
	}
	s.regionTag.Width = 4 // an enum, of which the table does not know the width
	return s
}

// Moves reports whether a collector moves objects while Java threads run, or may do so because it
// is not known.
func (c Collector) Moves() bool {
	return c == CollectorZ || c == CollectorShenandoah || c == CollectorUnknown
}

// CollectorFlags are the command line flags of which the VM sets the one of its collector.
var CollectorFlags = []struct {
	Name      string
	collector Collector
}{
	{"UseSerialGC", CollectorSerial},
	{"UseParallelGC", CollectorParallel},
	{"UseG1GC", CollectorG1},
	{"UseZGC", CollectorZ},
	{"UseShenandoahGC", CollectorShenandoah},
	{"UseEpsilonGC", CollectorEpsilon},
}

// A Reader finds out about the heap of a VM.
type Reader struct {
	vmstructs.Reader
	Heap    *Schema
	Colours *ColourSchema
	Flags   vmstructs.FlagValues
	Missing func(sentence string)
}

// Layout reads where the heap is, and what distinguishes its generations. It returns ErrStarting if
// there is no heap yet.
func (r Reader) Layout() (l HeapLayout, err error) {
	s := r.Heap
	heap, err := r.Word(s.Heap)
	if err != nil {
		return l, err
	}
	if heap == 0 {
		return l, vmruntime.ErrStarting
	}
	for _, f := range CollectorFlags {
		if r.Flags.On(f.Name) {
			l.Collector = f.collector
		}
	}
	if l.Low, l.High, err = r.region(s.reserved.At(heap)); err != nil {
		return l, err
	}
	if l.Collector == CollectorZ {
		if l.Low, l.High, err = r.colouredHeap(); err != nil {
			return l, err
		}
	}
	if l.Low == 0 || l.High <= l.Low {
		return l, fmt.Errorf("heap from %#x to %#x: %w", l.Low, l.High, vmruntime.ErrMalformed)
	}
	switch l.Collector {
	case CollectorSerial:
		err = r.serial(heap, &l)
	case CollectorParallel:
		err = r.parallel(&l)
	case CollectorG1:
		err = r.regions(heap, &l)
	}
	if err != nil {
		return l, err
	}
	if l.Generations == GenerationsUnknown {
		r.Missing(fmt.Sprintf("Generations of the heap are unknown (collector: %v): "+
			"profiles do not distinguish young and old objects.", l.Collector))
	}
	return l, nil
}

// region reads a MemRegion.
func (r Reader) region(addr uint64) (low, high uint64, err error) {
	s := r.Heap
	b, err := r.Bytes(addr, vmstructs.LastEnd(s.start, s.words))
	if err != nil {
		return 0, 0, err
	}
	low = s.start.Read(b)
	return low, low + vmstructs.WordSize*s.words.Read(b), nil
}

// serial reads the bounds of the young generation, which do not move.
func (r Reader) serial(heap uint64, l *HeapLayout) error {
	s := r.Heap
	if !s.youngGen.Known || !s.generation.Known {
		return nil
	}
	young, err := r.Word(s.youngGen.At(heap))
	if err != nil {
		return err
	}
	return r.bounds(s.generation.At(young), l)
}

// parallel reads the bounds of the young generation. They move only with
// -XX:+UseAdaptiveGCBoundary, which was experimental, and is gone from JDK 15 on.
func (r Reader) parallel(l *HeapLayout) error {
	s := r.Heap
	if s.parallelYoung == 0 || !s.parallelGeneration.Known || r.Flags.On("UseAdaptiveGCBoundary") {
		return nil
	}
	young, err := r.Word(s.parallelYoung)
	if err != nil {
		return err
	}
	return r.bounds(s.parallelGeneration.At(young), l)
}

func (r Reader) bounds(addr uint64, l *HeapLayout) (err error) {
	if l.YoungLow, l.YoungHigh, err = r.region(addr); err != nil {
		return err
	}
	if l.YoungLow < l.Low || l.YoungHigh > l.High || l.YoungHigh <= l.YoungLow {
		return fmt.Errorf("young generation from %#x to %#x: %w", l.YoungLow, l.YoungHigh, vmruntime.ErrMalformed)
	}
	l.Generations = GenerationsByBounds
	return nil
}

// regions reads where G1 keeps what it knows of a region
// (src/hotspot/share/gc/g1/g1BiasedArray.hpp).
func (r Reader) regions(heap uint64, l *HeapLayout) (err error) {
	s := r.Heap
	if !s.regionTable.Known || !s.regionShift.Known || !s.regionTag.Known ||
		s.edenTag == 0 || s.survivorTag == 0 || s.oldMask == 0 {
		return nil
	}
	if l.RegionTable, err = r.Word(s.regionTable.At(heap)); err != nil {
		return err
	}
	shift, err := r.Word(s.regionShift.At(heap))
	if err != nil {
		return err
	}
	const smallest, largest = 20, 29 // log2 of a region's bytes: 1 to 512 MiB (heapRegionBounds.hpp)
	if shift &= 0xff; shift < smallest || shift > largest {
		return fmt.Errorf("regions of 1<<%d bytes: %w", shift, vmruntime.ErrMalformed)
	}
	l.RegionShift, l.RegionTag = uint8(shift), s.regionTag.Offset
	l.EdenTag, l.SurvivorTag, l.OldMask, l.HumongousMask = s.edenTag, s.survivorTag, s.oldMask, s.humongousMask
	l.Generations = GenerationsByRegion
	return nil
}
