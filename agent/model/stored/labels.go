package stored

import (
	"math"
	"slices"
	"strconv"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// UnitBytes is the unit of sizes.
const UnitBytes = "bytes"

// The format has no field for the offset of a call site, but it distinguishes locations by their
// address, which nothing else needs where a method stands for itself. So the address of a caller's
// location is the offset of the site plus one, and 0 if that is not known.

// SiteAddress is where the offset of a call site is stored.
func SiteAddress(s profile.Site) uint64 {
	if s.Offset < 0 {
		return 0
	}
	return uint64(s.Offset) + 1
}

// SiteOf reads a call site back. What cannot be one is unknown.
func SiteOf(line int64, address uint64) profile.Site {
	site := profile.Site{Offset: -1}
	if 0 < line && line <= math.MaxInt32 {
		site.Line = int32(line)
	}
	if 0 < address && address <= math.MaxInt32+1 {
		site.Offset = int32(address - 1)
	}
	return site
}

// NoSite is a call site of which nothing is known.
var NoSite = profile.Site{Offset: -1}

// Names and units of sample types. EngineCount is the label engine of the calls of one method that
// were counted by breakpoints on its code: record --count.
const EngineCount = "count"

const (
	TypeSamples = "samples"
	TypeCPU     = "cpu"
	TypeCalls   = "calls"
	TypeEntries = "entries"
	TypeSlow    = "slow" // time of the slowest invocations of a method: record --slow
	UnitCount   = "count"
	UnitTime    = "nanoseconds"
)

// TypeEvents is how many observed events the values of a sample were estimated from.
const TypeEvents = "events"

// MainValue is the value of a kind to show first.
func MainValue(kind profile.EventKind) profile.ValueType { return kind.Values()[kind.Main()] }

// EventTypes returns the columns of values of a kind, and the one to show first.
func EventTypes(kind profile.EventKind) (types []*pprof.ValueType, first string) {
	for _, t := range kind.Values() {
		types = append(types, &pprof.ValueType{Type: t.Type, Unit: t.Unit})
	}
	types = append(types, &pprof.ValueType{Type: TypeEvents, Unit: UnitCount})
	return types, MainValue(kind).Type
}

// Names of the pseudo-mappings by what runs there, in brackets and with the VM behind a colon:
// [jit:HotSpot]. They are all that a stored profile says about a frame's kind.
const (
	MappingJIT         = "[jit"
	MappingInterpreter = "[interpreter"
	MappingStub        = "[stub"
	MappingKernel      = "[kernel"
)

// Keys of the labels that samples carry.
const (
	LabelThread      = "thread"
	LabelThreadGroup = "thread_group" // see ThreadGroup
	LabelComm        = "comm"
	LabelRuntime     = "runtime"
	LabelService     = "service"
	LabelPID         = "pid" // numeric, as is tid
	LabelTID         = "tid"
	LabelAttribution = "attribution"
	// Approximate is the attribution of a sample with a frame [inlined in M]: the leaf, or the
	// caller of a stub.
	Approximate = "approximate"
	// LabelContext says of a sample whose context is not certain how it was found: see
	// profile.Certainty.
	LabelContext = "context"
	// LabelStopped marks samples that were taken while the VM had stopped its Java threads.
	LabelStopped = "stopped"
	StoppedYes   = "yes"
	// LabelWindow is numeric, from 1: which of several consecutive windows a sample is of.
	LabelWindow = "window"
	// Of calls:
	LabelEngine  = "engine"
	LabelBasis   = "basis"
	LabelFactor  = "factor"  // numeric: calls are from so many percent fewer to so many percent more times the value
	LabelStride  = "stride"  // numeric, as is samples
	LabelSamples = "samples" // a tick
	// ExactEngine is the engine of whole contexts of which every call was counted.
	ExactEngine = "exact"
	// Of events: see profile.EventLabels.
	LabelClass        = "class"
	LabelGeneration   = "generation" // the place of an allocated object
	LabelPlace        = "place"      // the place of any other object or address
	LabelKind         = "kind"
	LabelCollector    = "collector" // the garbage collector, during a pause
	LabelField        = "field"
	LabelOffset       = "offset" // numeric, in bytes
	LabelProbe        = "probe"
	LabelValue        = "value"
	LabelHolder       = "holder"        // Locks: the method in which a thread was seen to have the lock during the wait
	LabelHolderThread = "holder_thread" // that thread, or its group
	LabelCause        = "cause"         // OffCPU, Wall: what a thread waited for, or running
	LabelState        = "state"         // OffCPU, Wall: running, blocked, runnable, …
	LabelWaker        = "waker"         // OffCPU, Wall: the thread that ended the wait, or what the kernel was at
	LabelWakerComm    = "waker_comm"    // the command of a waker in another process
	LabelWakerPID     = "waker_pid"     // numeric
	// LabelDraw is numeric, of OffCPU and Wall: the time, in ns, that one draw stands for, of those
	// that the time of a sample is estimated from. That time is exact without it. LabelBasis says
	// whether the sum of a thread's time is known nevertheless: profile.Drawn, profile.Divided.
	LabelDraw = "draw"
	// Of TypeSlow, together with thread, tid, cause and state.
	LabelCall  = "call"  // numeric, from 1, which is the slowest
	LabelStart = "start" // when it began: RFC 3339, UTC
	LabelEnd   = "end"   // returned, unwound, running: see profile.CallEnd
)

// labels are all of these.
var labels = []string{
	LabelThread, LabelThreadGroup, LabelComm, LabelRuntime, LabelService, LabelPID, LabelTID, LabelAttribution,
	LabelContext, LabelStopped,
	LabelWindow, LabelEngine, LabelBasis, LabelFactor, LabelStride, LabelSamples, LabelClass, LabelGeneration,
	LabelPlace, LabelKind,
	LabelCollector, LabelField, LabelOffset, LabelProbe, LabelValue, LabelHolder, LabelHolderThread, LabelCause,
	LabelState, LabelWaker, LabelWakerComm, LabelWakerPID, LabelDraw,
	LabelCall, LabelStart, LabelEnd,
}

// IsLabel reports whether a label is one of those above, which users cannot give to processes.
func IsLabel(name string) bool { return slices.Contains(labels, name) }

// ValueSum is the only value that may be negative.
var ValueSum = profile.Values.Values()[1]

// LabelText returns the value of a label of a sample, numbers in digits; ok is false if it has
// none.
func LabelText(s *pprof.Sample, key string) (text string, ok bool) {
	if values := s.Label[key]; len(values) > 0 {
		return values[0], true
	}
	if values := s.NumLabel[key]; len(values) > 0 {
		return strconv.FormatInt(values[0], 10), true
	}
	return "", false
}
