package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Types of the object of probes. Layouts and units: hotspot.h, event.h, observation.h, observe.bpf.h,
// allocation.bpf.h, pause.bpf.h, lockwait.bpf.h, unmounted.bpf.h.
type (
	HotspotHeap  = ProbeHotspotHeap
	ProbeRate    = ProbeProbe
	ProbeCount   = ProbeProbeCount
	Stranger     = ProbeStranger
	CountedClass = ProbeCountedClass
	ClassCount   = ProbeClassCount
	NameSite     = ProbeNameSite
	LockWait     = ProbeLockWait
	LockKey      = ProbeLockKey
	PauseCause   = ProbePauseCause
	EndedThread  = ProbeEndedThread

	VirtualThread = ProbeVirtualThread
	UnmountedWait = ProbeUnmountedWait
	VirtualCount  = ProbeVirtualCount
)

// What a probe saw.
const (
	// ObservedAllocation has the values: bytes of the object, of all objects that it stands for;
	// the thread's address.
	ObservedAllocation = uint8(ProbeObservedOBSERVED_ALLOCATION)
	ObservedMonitor    = uint8(ProbeObservedOBSERVED_MONITOR) // values: ns, the lock
	ObservedPark       = uint8(ProbeObservedOBSERVED_PARK)    // values: ns, the lock
	ObservedRelease    = uint8(ProbeObservedOBSERVED_RELEASE) // values: the lock
	ObservedValues     = uint8(ProbeObservedOBSERVED_VALUES)
	ObservedPause      = uint8(ProbeObservedOBSERVED_PAUSE)    // values: ns; text: a PauseCause
	ObservedFault      = uint8(ProbeObservedOBSERVED_FAULT)    // values: data address, pc
	ObservedOverflow   = uint8(ProbeObservedOBSERVED_OVERFLOW) // values: events of a CPU's counter
	// ObservedWait has the values WaitSince and so on, and the flags OffCPUBlocked and so on.
	ObservedWait = uint8(ProbeObservedOBSERVED_WAIT)
	// ObservedWaker has the values WakerTID, WakerSince, the flags WakerChosen, WakerKernel, and
	// the process's comm as text.
	ObservedWaker = uint8(ProbeObservedOBSERVED_WAKER)
	// ObservedCard has the values: address of a card, 1 if the thread had no queue.
	ObservedCard      = uint8(ProbeObservedOBSERVED_CARD)
	ObservedException = uint8(ProbeObservedOBSERVED_EXCEPTION) // no values
	// ObservedFreeze has the values: the virtual thread's number, ns of CLOCK_MONOTONIC.
	ObservedFreeze = uint8(ProbeObservedOBSERVED_FREEZE)
	// ObservedThaw has the values: its number, when the wait began, ns that it took.
	ObservedThaw = uint8(ProbeObservedOBSERVED_THAW)
)

// Flags of an observation.
const (
	SeenOutside    = uint8(ProbeSeenFlagsSEEN_OUTSIDE)    // allocation: not in a buffer
	SeenContended  = uint8(ProbeSeenFlagsSEEN_CONTENDED)  // monitor: it was not free
	SeenSpun       = uint8(ProbeSeenFlagsSEEN_SPUN)       // monitor: acquired while spinning
	SeenCollection = uint8(ProbeSeenFlagsSEEN_COLLECTION) // pause: garbage was collected
	SeenCut        = uint8(ProbeSeenFlagsSEEN_CUT)        // the text did not fit
)

// Places of an object.
const (
	PlaceUnknown   = uint8(ProbeHeapPlacePLACE_UNKNOWN)
	PlaceYoung     = uint8(ProbeHeapPlacePLACE_YOUNG)
	PlaceSurvivor  = uint8(ProbeHeapPlacePLACE_SURVIVOR)
	PlaceOld       = uint8(ProbeHeapPlacePLACE_OLD)
	PlaceHumongous = uint8(ProbeHeapPlacePLACE_HUMONGOUS)
)

// Kinds of a UnmountedWait.
const (
	UnmountedParked  = uint32(ProbeUnmountedKindUNMOUNTED_PARKED)
	UnmountedMonitor = uint32(ProbeUnmountedKindUNMOUNTED_MONITOR)
)

// Flags of a HotspotHeap.
const (
	HeapNarrowKlass   = uint32(ProbeHeapFlagsHEAP_NARROW_KLASS)
	HeapCompactHeader = uint32(ProbeHeapFlagsHEAP_COMPACT_HEADER)
	HeapRegions       = uint32(ProbeHeapFlagsHEAP_REGIONS)
	HeapYoungBounds   = uint32(ProbeHeapFlagsHEAP_YOUNG_BOUNDS)
	HeapNarrowOop     = uint32(ProbeHeapFlagsHEAP_NARROW_OOP)
	HeapThreadHandle  = uint32(ProbeHeapFlagsHEAP_THREAD_HANDLE)
	HeapMonitorHandle = uint32(ProbeHeapFlagsHEAP_MONITOR_HANDLE)
	HeapParkBlocker   = uint32(ProbeHeapFlagsHEAP_PARK_BLOCKER)
	HeapColoured      = uint32(ProbeHeapFlagsHEAP_COLOURED)
	HeapConcurrent    = uint32(ProbeHeapFlagsHEAP_CONCURRENT)
	HeapMounted       = uint32(ProbeHeapFlagsHEAP_MOUNTED)
)

// MaxProbes bounds the probes of events that are attached at once: MAX_PROBES, less those of perf
// events and of waits.
const MaxProbes = 1020

// MaxWaiting bounds the threads that may wait, of locks or parked, at once: MAX_WAITING.
const MaxWaiting = 16384

// Cookies of what comes as perf events.
const (
	ProbeFault        = 1023 // PROBE_FAULT
	ProbeCycles       = 1022 // PROBE_CYCLES
	ProbeInstructions = 1021 // PROBE_INSTRUCTIONS
)

// InstructionsPeriod is how many instructions one overflow of that counter stands for, if any do.
// The programs tell it from others by its period, so no other counter may have it.
const InstructionsPeriod = 9_999_973

// LoadFaults loads the programs behind perf events next to o. They share the maps of guests and of
// rates with probes p. The caller closes them before p.
func (o *Objects) LoadFaults(p *ProbeObjects) (*FaultObjects, error) {
	spec, err := LoadFault()
	if err != nil {
		return nil, fmt.Errorf("read fault object: %w", err)
	}
	if err := spec.Variables["instructions_period"].Set(uint64(InstructionsPeriod)); err != nil {
		return nil, fmt.Errorf("set constants: %w", err)
	}
	var faults FaultObjects
	if err := o.loadEvents(spec, &faults, map[string]*ebpf.Map{"heaps": p.Heaps, "probes": p.Probes,
		"probe_counts": p.ProbeCounts}); err != nil {
		return nil, fmt.Errorf("load programs of perf events: %w", err)
	}
	return &faults, nil
}

// LoadProbes loads the programs behind probes of events next to o. The caller closes them before o.
func (o *Objects) LoadProbes() (*ProbeObjects, error) {
	spec, err := LoadProbe()
	if err != nil {
		return nil, fmt.Errorf("read probe object: %w", err)
	}
	var probes ProbeObjects
	if err := o.loadEvents(spec, &probes, nil); err != nil {
		return nil, fmt.Errorf("load programs of probes: %w", err)
	}
	return &probes, nil
}

// loadEvents loads an object whose programs observe (observe.bpf.h), with these maps of another one
// shared.
func (o *Objects) loadEvents(spec *ebpf.CollectionSpec, to any, shared map[string]*ebpf.Map) error {
	if err := setScratches(spec); err != nil {
		return err
	}
	err := errors.Join(spec.Variables["java_only"].Set(true),
		spec.Variables["wakeup_bytes"].Set(o.Events.MaxEntries()/2),
		spec.Variables["draw_seed"].Set(rand.Uint64()))
	if err != nil {
		return fmt.Errorf("set constants: %w", err)
	}
	return o.loadBeside(spec, to, shared)
}

// An Observation is what a probe saw, and the sample that has its context. It points into the
// record it was decoded from.
type Observation struct {
	Sample
	Seen *ProbeObservation
	Text []byte
}

// DecodeObservation decodes raw into o without copying.
func DecodeObservation(raw []byte, o *Observation) error {
	if err := DecodeSample(raw, &o.Sample); err != nil {
		return err
	}
	const fixed = unsafe.Offsetof(ProfileSample{}.Frames)
	raw = aligned(raw)
	tail := raw[int(fixed)+8*(len(o.User)+len(o.Kernel)):]
	if o.Flags&(SampleDepths|SampleShared) != 0 || len(tail) < int(unsafe.Sizeof(ProbeObservation{})) {
		return fmt.Errorf("observation with %d bytes behind its frames: %w", len(tail), ErrMalformed)
	}
	length := int(binary.NativeEndian.Uint16(tail[unsafe.Offsetof(ProbeObservation{}.TextLen):]))
	text := tail[unsafe.Sizeof(ProbeObservation{}):]
	seen := (*ProbeObservation)(unsafe.Pointer(unsafe.SliceData(tail)))
	if length > len(text) || int(seen.Count) > len(seen.Values) {
		return fmt.Errorf("observation with %d values and %d of %d bytes of text: %w", seen.Count, length, len(text),
			ErrMalformed)
	}
	o.Seen, o.Text = seen, text[:length]
	return nil
}

// NotSited is EndedThread.Sited if it is not known for which bytes an observed allocation may
// stand.
const NotSited = ^uint64(0)

// DecodeEndedThread decodes what a thread had allocated when it ended, without copying.
func DecodeEndedThread(raw []byte) (*EndedThread, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(EndedThread{}) {
		return nil, fmt.Errorf("end of a thread of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*EndedThread)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}

// Cause is why a VM stopped its Java threads, of an ObservedPause: the operation that it did, and
// what collected garbage meanwhile, hostile text of up to 64 bytes each; "" if unknown.
func (o *Observation) Cause() (operation, collector string) {
	var c PauseCause
	name := func(from uintptr, most int) string {
		text := o.Text[min(int(from), len(o.Text)):min(int(from)+most, len(o.Text))]
		text, _, _ = bytes.Cut(text, []byte{0})
		return string(text)
	}
	return name(unsafe.Offsetof(c.Operation), len(c.Operation)), name(unsafe.Offsetof(c.Collector), len(c.Collector))
}

// What values are asked of a probe. Layouts and units: value.bpf.h.
type (
	ProbedValues = ProbeProbedValues
	ProbedValue  = ProbeProbedValue
	ValueOperand = ProbeValueOperand
)

// Forms of a value.
const (
	ValueNumber = uint8(ProbeValueFormVALUE_NUMBER)
	ValueText   = uint8(ProbeValueFormVALUE_TEXT)   // bytes at an address
	ValueSymbol = uint8(ProbeValueFormVALUE_SYMBOL) // HotSpot: a Symbol
	ValueKlass  = uint8(ProbeValueFormVALUE_KLASS)  // HotSpot: the name of a Klass
	ValueClass  = uint8(ProbeValueFormVALUE_CLASS)  // HotSpot: the name of an object's Klass
)

// MaxObservedValues bounds the values of an observation, MaxObservedText the bytes of text that
// they share, and MaxFollowed the pointers that lead to one: MAX_OBSERVED_VALUES,
// MAX_OBSERVED_TEXT, MAX_FOLLOWED.
const (
	MaxObservedValues = len(ProbeProbedValues{}.Values)
	MaxObservedText   = 480
	MaxFollowed       = len(ProbeProbedValue{}.Offsets)
)

// Failed reports that value i of ObservedValues could not be read, or that there is none.
func (o *Observation) Failed(i int) bool {
	return i < 0 || i >= int(o.Seen.Count) || o.Seen.Failed&(1<<i) != 0
}

// ValueText is value i of ObservedValues, if it is a text, and whether it is only the beginning of
// it. It is nil if the value could not be read, and points into the record.
func (o *Observation) ValueText(i int) (text []byte, cut bool) {
	if o.Failed(i) {
		return nil, false
	}
	begin, length := o.Seen.Values[i]>>32, o.Seen.Values[i]&0xffffffff
	if begin+length > uint64(len(o.Text)) {
		return nil, false
	}
	return o.Text[begin : begin+length : begin+length], o.Seen.Cut&(1<<i) != 0
}
