package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

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
