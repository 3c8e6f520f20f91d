package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A heapSchema leads to the heap and its generations. Where an object's generation cannot be told, heaps are still
// known: only the bounds are required.
type heapSchema struct {
	heap                     uint64 // static CollectedHeap*
	reserved, start, words   field  // of CollectedHeap: a MemRegion, which has the other two
	youngGen                 field  // of Serial's heap: Generation*
	generation               field  // of Generation: MemRegion
	parallelYoung            uint64 // static PSYoungGen*
	parallelGeneration       field  // of PSYoungGen: MemRegion
	regionTable, regionShift field  // of G1CollectedHeap, through its HeapRegionManager
	regionTag                field  // of HeapRegion
	edenTag, survivorTag     uint32
	oldMask, humongousMask   uint32
}

func newHeapSchema(r *resolver) heapSchema {
	within := func(outer, inner field) field {
		return field{outer.offset + inner.offset, inner.width, outer.known && inner.known}
	}
	tag := func(name string) uint32 {
		return uint32(r.constant("G1HeapRegionType::"+name, "HeapRegionType::"+name))
	}
	regions := within(r.optional("G1CollectedHeap._hrm"),
		r.optional("G1HeapRegionManager._regions", "HeapRegionManager._regions"))
	s := heapSchema{
		heap:     r.static("Universe._collectedHeap"),
		reserved: r.field("CollectedHeap._reserved"),
		start:    r.field("MemRegion._start"),
		words:    r.field("MemRegion._word_size"),
		// JDK 8 has an array of two generations there, the young one first.
		youngGen:           r.optional("SerialHeap._young_gen", "GenCollectedHeap._young_gen", "GenCollectedHeap._gens"),
		generation:         r.optional("Generation._reserved"),
		parallelYoung:      r.optionalStatic("ParallelScavengeHeap._young_gen"),
		parallelGeneration: r.optional("PSYoungGen._reserved"),
		regionTable:        within(regions, r.optional("G1HeapRegionTable._biased_base")),
		regionShift:        within(regions, r.optional("G1HeapRegionTable._shift_by")),
		regionTag: within(r.optional("G1HeapRegion._type", "HeapRegion._type"),
			r.optional("G1HeapRegionType._tag", "HeapRegionType._tag")),
		edenTag:       tag("EdenTag"),
		survivorTag:   tag("SurvTag"),
		oldMask:       tag("OldMask"),
		humongousMask: tag("HumongousMask"),
	}
	s.regionTag.width = 4 // an enum, of which the table does not know the width
	return s
}

// collectorFlags are the command line flags of which the VM sets the one of its collector.
var collectorFlags = []struct {
	name      string
	collector Collector
}{
	{"UseSerialGC", CollectorSerial},
	{"UseParallelGC", CollectorParallel},
	{"UseG1GC", CollectorG1},
	{"UseZGC", CollectorZ},
	{"UseShenandoahGC", CollectorShenandoah},
	{"UseEpsilonGC", CollectorEpsilon},
}

// A heapReader finds out about the heap of a VM.
type heapReader struct {
	target
	heap    *heapSchema
	colours *colourSchema
	flags   flagValues
	missing func(sentence string)
}

// layout reads where the heap is, and how its generations are told apart. ErrStarting if there is none yet.
func (r heapReader) layout() (l HeapLayout, err error) {
	s := r.heap
	heap, err := r.word(s.heap)
	if err != nil {
		return l, err
	}
	if heap == 0 {
		return l, vmruntime.ErrStarting
	}
	for _, f := range collectorFlags {
		if r.flags.on(f.name) {
			l.Collector = f.collector
		}
	}
	if l.Low, l.High, err = r.region(s.reserved.at(heap)); err != nil {
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
		r.missing(fmt.Sprintf("Generations of the heap cannot be told apart (collector: %v): young and old objects "+
			"look alike.", l.Collector))
	}
	return l, nil
}

// region reads a MemRegion.
func (r heapReader) region(addr uint64) (low, high uint64, err error) {
	s := r.heap
	b, err := r.bytes(addr, lastEnd(s.start, s.words))
	if err != nil {
		return 0, 0, err
	}
	low = s.start.of(b)
	return low, low + wordSize*s.words.of(b), nil
}

// serial reads the bounds of the young generation, which do not move.
func (r heapReader) serial(heap uint64, l *HeapLayout) error {
	s := r.heap
	if !s.youngGen.known || !s.generation.known {
		return nil
	}
	young, err := r.word(s.youngGen.at(heap))
	if err != nil {
		return err
	}
	return r.bounds(s.generation.at(young), l)
}

// parallel reads the bounds of the young generation. They move only with -XX:+UseAdaptiveGCBoundary, which was
// experimental, and is gone from JDK 15 on.
func (r heapReader) parallel(l *HeapLayout) error {
	s := r.heap
	if s.parallelYoung == 0 || !s.parallelGeneration.known || r.flags.on("UseAdaptiveGCBoundary") {
		return nil
	}
	young, err := r.word(s.parallelYoung)
	if err != nil {
		return err
	}
	return r.bounds(s.parallelGeneration.at(young), l)
}

func (r heapReader) bounds(addr uint64, l *HeapLayout) (err error) {
	if l.YoungLow, l.YoungHigh, err = r.region(addr); err != nil {
		return err
	}
	if l.YoungLow < l.Low || l.YoungHigh > l.High || l.YoungHigh <= l.YoungLow {
		return fmt.Errorf("young generation from %#x to %#x: %w", l.YoungLow, l.YoungHigh, vmruntime.ErrMalformed)
	}
	l.Generations = GenerationsByBounds
	return nil
}

// regions reads where G1 keeps what it knows of a region (src/hotspot/share/gc/g1/g1BiasedArray.hpp).
func (r heapReader) regions(heap uint64, l *HeapLayout) (err error) {
	s := r.heap
	if !s.regionTable.known || !s.regionShift.known || !s.regionTag.known ||
		s.edenTag == 0 || s.survivorTag == 0 || s.oldMask == 0 {
		return nil
	}
	if l.RegionTable, err = r.word(s.regionTable.at(heap)); err != nil {
		return err
	}
	shift, err := r.word(s.regionShift.at(heap))
	if err != nil {
		return err
	}
	const smallest, largest = 20, 29 // log2 of a region's bytes: 1 to 512 MiB (heapRegionBounds.hpp)
	if shift &= 0xff; shift < smallest || shift > largest {
		return fmt.Errorf("regions of 1<<%d bytes: %w", shift, vmruntime.ErrMalformed)
	}
	l.RegionShift, l.RegionTag = uint8(shift), s.regionTag.offset
	l.EdenTag, l.SurvivorTag, l.OldMask, l.HumongousMask = s.edenTag, s.survivorTag, s.oldMask, s.humongousMask
	l.Generations = GenerationsByRegion
	return nil
}
