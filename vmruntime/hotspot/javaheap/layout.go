// Package javaheap has the layout of objects and of the Java heap: headers, references, shapes and
// fields of objects, collectors, regions and generations.
//
//	heap, err := javaheap.Reader{...}.Layout()             // bounds, collector, how to find generations
//	klass := objectLayout.ClassOf(header)
//	shape, ok := javaheap.NewShape(layoutHelper)
//	bytes := shape.Bytes(length, alignment)
//
// Files:
//
//	layout      what leads from an address to an object: ObjectLayout, HeapLayout
//	heap        reading a HeapLayout
//	cards       where the table of cards is
//	generation  how long an object has lived
//	colours     references of ZGC
//	forwarding  where ZGC has moved objects to
//	header      headers of objects
//	shape       sizes of objects
//	fieldinfo   the fields of a class
//
// Nothing here follows pointers from object to object: see hotspot.Process.ObjectAt for that.
package javaheap

// ObjectLayout is how objects, their classes and the heap look: what leads from an address in the
// heap or from a thread to names. Offsets are in bytes.
type ObjectLayout struct {
	// Klass is where an object's class is: a pointer; or if KlassIsNarrow 32 bits; or if
	// KlassInMark the bits from KlassBit on of a 64-bit word. The latter two are narrow: the class
	// is at KlassBase + n<<KlassShift.
	Klass         uint32
	KlassIsNarrow bool
	KlassInMark   bool // compact object headers, JDK 24+
	KlassBit      uint8
	KlassBase     uint64
	KlassShift    uint8
	// MarkBits is how many bits of an object's first 64-bit word may be set if the lowest three are
	// 001: it is not locked then. With KlassInMark that is no test.
	MarkBits uint8

	// OopIsNarrow says that references in fields of objects have 32 bits, and that an object is at
	// OopBase + n<<OopShift. Those outside the heap always have 64.
	OopIsNarrow bool
	OopBase     uint64
	OopShift    uint8
	// OopIsColoured says that references, in fields as in handles, have bits of generational ZGC
	// below the address: the object is at the reference shifted right by OopColourShift, or where
	// that is 0 by 1 + the number of the lowest bit that is set from bit 12 to 15. An object that
	// was moved since the reference was written may be gone from there.
	OopIsColoured  bool
	OopColourShift uint8
	// BadColours is where a word is, of ZGC, with bits that a reference has none of if its object
	// has not moved since it was written. They change. 0 if that is not known.
	BadColours uint64
	// Forwarding leads to objects of ZGC from where they were before.
	Forwarding Forwarding

	ArrayLength uint32 // array: 32 bits
	Alignment   uint32 // alignment of objects; a power of two

	KlassName    uint32 // Klass: pointer to a Symbol
	LayoutHelper uint32 // Klass: 32 bits, size of the objects: see Shape
	SymbolLength uint32 // Symbol: 16 bits
	SymbolBody   uint32 // Symbol: the first byte of modified UTF-8

	TLABStart, TLABTop, TLABEnd uint32 // JavaThread: pointers; allocation goes on at top
	// JavaThread: 64 bits, the bytes that it has allocated but for those from TLABStart to TLABTop
	Allocated    uint32
	HasAllocated bool
	// ThreadList is where the VM has its threads: a pointer to a ThreadsList, or to the first
	// JavaThread if ListThreads is 0.
	ThreadList              uint64
	ListLength, ListThreads uint32 // ThreadsList: 32 bits; pointer to the pointers to JavaThreads
	ThreadNext              uint32 // JavaThread: pointer to the next one, if ListThreads is 0
	OSThread, OSThreadID    uint32 // as in ThreadLayout

	// ThreadObject is in JavaThread: the java.lang.Thread, or if ThreadObjectIsHandle a pointer to
	// a word with it.
	ThreadObject         uint32
	ThreadObjectIsHandle bool
	// ParkBlocker is where in a java.lang.Thread the reference is to what it waits for in
	// java.util.concurrent.
	ParkBlocker    uint32
	HasParkBlocker bool
	// MonitorObject is in ObjectMonitor: the object that is locked, or a pointer to a word with it.
	MonitorObject         uint32
	MonitorObjectIsHandle bool
	// MonitorOwner is in ObjectMonitor: a word that is 0 if nobody has the monitor. 0 if the VM
	// does not say where.
	MonitorOwner uint32

	Heap HeapLayout
}

// A Collector is a kind of garbage collector, and so of heap.
type Collector uint8

// Collectors, by the flag that selects each.
const (
	CollectorUnknown Collector = iota
	CollectorSerial
	CollectorParallel
	CollectorG1
	CollectorZ
	CollectorShenandoah
	CollectorEpsilon
)

// String is the collector's name: "G1".
func (c Collector) String() string {
	names := [...]string{"unknown", "Serial", "Parallel", "G1", "ZGC", "Shenandoah", "Epsilon"}
	if int(c) >= len(names) {
		c = 0
	}
	return names[c]
}

// A GenerationRule says how the generation of an object is found out.
type GenerationRule uint8

// Rules, by collector.
const (
	GenerationsUnknown  GenerationRule = iota
	GenerationsByBounds                // young are those from YoungLow to YoungHigh
	GenerationsByRegion                // by the tag of the region
)

// HeapLayout is where objects are. It does not change while the process lives.
type HeapLayout struct {
	Collector   Collector
	Low, High   uint64 // no object is outside
	Generations GenerationRule

	YoungLow, YoungHigh uint64 // Serial and Parallel

	// G1: the pointer at RegionTable + 8*(address>>RegionShift), modulo 2^64, leads to the region
	// of an address in the heap; null where none was made yet. RegionTag is in it: 32 bits, one of
	// EdenTag and SurvivorTag, or a number with some bits of OldMask or HumongousMask; others are
	// free.
	RegionTable            uint64
	RegionShift            uint8
	RegionTag              uint32
	EdenTag, SurvivorTag   uint32
	OldMask, HumongousMask uint32
}

// Contains reports whether an object may be at addr.
func (l *HeapLayout) Contains(addr uint64) bool { return addr >= l.Low && addr < l.High }
