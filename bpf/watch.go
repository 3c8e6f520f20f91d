package bpf

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
)

// A Watch is how each value of a map of watches begins. Layout and units: watch.bpf.h.
type Watch = ListenerWatch

// Bounds of the kernel side of watches.
const (
	MaxWatches     = 16 // processes that are watched at once: MAX_WATCHES
	WatchAddresses = 3  // addresses of a watch: WATCH_ADDRESSES
)

// Head is what all watches have in common.
func (w *CallWatch) Head() *Watch { return &w.Watch }

// Head is what all watches have in common.
func (w *MonitorWatch) Head() *Watch { return (*Watch)(&w.Watch) }

// setPageRings sizes the rings of short notices: a page is the least that the kernel takes, and its
// size is the machine's.
func setPageRings(spec *ebpf.CollectionSpec) {
	for _, name := range []string{"watch_ends", "usdt_notices"} {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = uint32(os.Getpagesize())
		}
	}
}

// Types of the object of monitor enters. Layouts and units: monitorenter.bpf.h.
type (
	MonitorWatch = MonitorEnterEnterWatch
	EnterSite    = MonitorEnterEnterSite
	EnterHit     = MonitorEnterEnterHit
)

// Bounds of the kernel side of monitor enters.
const (
	MaxEnterHits  = 64 // hits of a watch that are recorded: MAX_ENTER_HITS
	MaxEnterWalks = 12 // records with a context, of a watch: MAX_ENTER_WALKS
)

// enterRingBytes is the size of the stream of contexts: those of a watch fit twice, however long
// they are.
const enterRingBytes = 1 << 18

// LoadEnters loads the program behind breakpoints on monitor enters next to o. heaps are those of
// the VMs, as in ProbeObjects. The stream and the counters of the object are its own. The caller
// closes it before o.
func (o *Objects) LoadEnters(heaps *ebpf.Map) (*MonitorEnterObjects, error) {
	spec, err := LoadMonitorEnter()
	if err != nil {
		return nil, fmt.Errorf("read object of monitor enters: %w", err)
	}
	if err := setScratches(spec); err != nil {
		return nil, err
	}
	spec.Maps["events"].MaxEntries = enterRingBytes
	setPageRings(spec)
	shared := map[string]*ebpf.Map{"heaps": heaps, "processes": o.Processes, "epochs": o.Epochs}
	for name, m := range shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	var enters MonitorEnterObjects
	err = spec.Variables["java_only"].Set(true)
	if err == nil {
		err = spec.LoadAndAssign(&enters, o.collection(shared))
	}
	if err != nil {
		return nil, fmt.Errorf("load program of monitor enters: %w", err)
	}
	return &enters, nil
}

// Types of the object of timings. Layouts and units: timing.bpf.h.
type (
	TimedWatch  = TimingTimingWatch
	Timed       = TimingTimed
	TimedThread = TimingTimedThread
	TimingMode  = TimingTimingMode
	TimingLoss  = TimingTimingLoss
)

// What watches of timings do.
const (
	TimeCallers     = TimingTimingModeTIMING_CALLERS
	TimePairs       = TimingTimingModeTIMING_PAIR
	TimeInvocations = TimingTimingModeTIMING_INVOCATIONS
	TimeRounds      = TimingTimingModeTIMING_ROUNDS
)

// Why invocations or rounds are not timed: indexes of TimedWatch.Lost.
const (
	LostUnwatched = TimingTimingLossTIMING_UNWATCHED
	LostUnwound   = TimingTimingLossTIMING_UNWOUND
	LostDeep      = TimingTimingLossTIMING_DEEP
	LostNoSlot    = TimingTimingLossTIMING_NO_SLOT
	LostLeft      = TimingTimingLossTIMING_LEFT
)

// Bounds of the kernel side of timings.
const (
	MaxTimed        = 128 // timings of a watch: MAX_TIMED
	MaxTimedThreads = 16  // threads of a watch: MAX_TIMED_THREADS
	MaxTimedDepth   = 8   // open invocations of a thread: MAX_TIMED_DEPTH
)

// Head is what all watches have in common.
func (w *TimingTimingWatch) Head() *Watch { return (*Watch)(&w.Watch) }

// Timings are the program behind breakpoints that time invocations, and its maps. It shares nothing
// with other objects.
type Timings struct {
	Breakpoint *ebpf.Program `ebpf:"timing_breakpoint"`
	Watches    *ebpf.Map     `ebpf:"timing_watches"`
	Ends       *ebpf.Map     `ebpf:"watch_ends"`
}

// LoadTimings loads the program. A verifier's refusal is an *ebpf.VerifierError.
func LoadTimings() (*Timings, error) {
	spec, err := LoadTiming()
	if err != nil {
		return nil, fmt.Errorf("read object of timings: %w", err)
	}
	setPageRings(spec)
	var o Timings
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return nil, fmt.Errorf("load program of timings: %w", err)
	}
	return &o, nil
}

// Close frees the program and its maps.
func (o *Timings) Close() error {
	return errors.Join(o.Breakpoint.Close(), o.Watches.Close(), o.Ends.Close())
}

// Types of the object of invocations. Layouts and units: invocation.bpf.h, event.h.
type (
	Followed         = InvocationFollowed
	OpenInvocation   = InvocationOpenInvocation
	InvocationCounts = InvocationInvocationCounts
	Invocation       = InvocationInvocation
)

// How an invocation ended.
const (
	InvocationReturned = uint8(InvocationInvocationEndINVOCATION_RETURNED)
	InvocationUnwound  = uint8(InvocationInvocationEndINVOCATION_UNWOUND)
)

// FollowedAddresses bounds the code of a process: FOLLOWED_ADDRESSES.
const FollowedAddresses = 4

// Invocations are the program behind breakpoints that watch whole invocations, and its maps.
// Records go to the event stream.
type Invocations struct {
	Breakpoint *ebpf.Program  `ebpf:"invocation_breakpoint"`
	Code       *ebpf.Map      `ebpf:"followed_code"`    // Followed by pid
	Sums       *ebpf.Map      `ebpf:"invocation_sums"`  // InvocationCounts by pid
	Threads    *ebpf.Map      `ebpf:"open_invocations"` // OpenInvocation by tid
	Least      *ebpf.Variable `ebpf:"least_length"`     // ns: shorter invocations have no record
}

// LoadInvocations loads the program next to o. Close comes before that of o. Waits, if they are not
// nil and have OffCPUOptions.Inside, know which threads are in an invocation.
func (o *Objects) LoadInvocations(waits *OffCPU) (*Invocations, error) {
	spec, err := LoadInvocation()
	if err != nil {
		return nil, fmt.Errorf("read object of invocations: %w", err)
	}
	var shared map[string]*ebpf.Map
	if waits != nil {
		shared = map[string]*ebpf.Map{"open_invocations": waits.objects.OpenInvocations}
	}
	var i Invocations
	if err := o.loadBeside(spec, &i, shared); err != nil {
		return nil, fmt.Errorf("load program of invocations: %w", err)
	}
	return &i, nil
}

// Close frees the program and its maps.
func (i *Invocations) Close() error {
	return errors.Join(i.Breakpoint.Close(), i.Code.Close(), i.Sums.Close(), i.Threads.Close())
}

// DecodeInvocation decodes raw without copying.
func DecodeInvocation(raw []byte) (*Invocation, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(Invocation{}) {
		return nil, fmt.Errorf("invocation of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*Invocation)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}
