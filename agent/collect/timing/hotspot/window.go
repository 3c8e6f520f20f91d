package hotspot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of a window.
const (
	maxTimings  = bpf.MaxTimed
	maxCallers  = watch.MaxAddresses - 1 // return addresses that are watched next to an entry
	maxThreads  = bpf.MaxTimedThreads
	overrun     = 4 // times the window's limit: hits of each breakpoint, as a busy agent ends windows late
	longestWait = 20 * time.Second
)

// A timer opens windows of hardware breakpoints that time code.
type timer struct {
	objects  *bpf.Timings
	observer *watch.Observer
	excess   time.Duration // excess of timings of invocations, beyond the cost of pairs: see settle
	round    time.Duration // excess of timings of rounds, likewise; can be negative
	slower   float64       // times: what a tight loop takes with a breakpoint next to it, by what it takes without
}

// newTimer loads the kernel side, and sets breakpoints in the agent itself to see that they work
// and what they cost: some 50 ms.
func newTimer(ctx context.Context, root proc.Root, w *watch.Watcher) (*timer, error) {
	objects, err := bpf.LoadTimings()
	if err != nil {
		return nil, err
	}
	program := watch.Program{Breakpoint: objects.Breakpoint, Watches: objects.Watches, Ends: objects.Ends}
	observer, err := w.Attach(program, &bpf.TimedWatch{})
	if err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	t := &timer{objects: objects, observer: observer}
	if err := t.settle(ctx, root); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close ends the timer; no window may be open.
func (t *timer) Close() error { return errors.Join(t.observer.Close(), t.objects.Close()) }

// A window says what to watch.
type window struct {
	mode      bpf.TimingMode
	addresses []uint64 // as the mode has them
	threads   []int    // up to maxThreads; nil in windows of callers: those that ran lately
	limit     int      // invocations or rounds that are taken, up to maxTimings
	admit     time.Duration
	wait      time.Duration // time limit for the ends of those that are open then

	places  int                // for rounds: number of the first addresses that are in the loop
	counter *bpf.TimingOperand // for rounds: where their number of iterations shows; may be nil
}

func (w *window) check() error {
	switch {
	case len(w.addresses) < 1 || len(w.addresses) > watch.MaxAddresses, w.limit < 1 || w.limit > maxTimings,
		len(w.threads) > maxThreads, w.threads == nil && w.mode != bpf.TimeCallers,
		(w.mode == bpf.TimeRounds) != (w.places > 0), w.places > len(w.addresses), w.admit <= 0 || w.wait < 0 ||
			w.admit+w.wait > watch.MaxDuration:
		return fmt.Errorf("window of %d addresses in %d threads for %d timings and %v: %w", len(w.addresses),
			len(w.threads), w.limit, w.admit+w.wait, unix.EINVAL)
	}
	return nil
}

// A result is what a window observed. Every invocation or round that was taken is in Timed, Lost or
// Open.
type result struct {
	watch.Observation
	Timed   []bpf.Timed // as they ended
	Started int         // invocations that were taken
	Lost    [bpf.LostLeft + 1]int
	Hits    [bpf.WatchAddresses]uint32 // for rounds: arrivals at each address
	Open    int                        // invocations or rounds that had not ended
	Late    int                        // invocations that were not taken, as the window waited only for ends
	// Stray is how many arrivals ended nothing: other callees return to the same place, or the
	// invocation began before the window.
	Stray int
}

// time opens a window and waits for its end. watch.Refused and others of package watch say which
// errors are of the moment.
func (t *timer) time(ctx context.Context, id proc.Identity, w window) (r result, err error) {
	if err := w.check(); err != nil {
		return r, err
	}
	kernel := bpf.TimedWatch{Mode: uint32(w.mode), Places: uint32(w.places),
		Value: bpf.TimingOperand{Kind: bpf.OperandConstant}}
	if w.counter != nil {
		kernel.Value = *w.counter
	}
	for i, tid := range w.threads {
		kernel.Threads[i].Tid = uint32(tid)
	}
	request := watch.Request{
		Identity: id, Addresses: w.addresses, Threads: w.threads, Duration: w.admit + w.wait, Hits: w.limit,
		Overrun: overrun * w.limit,
		Before: func() error { // the process may have had another watch until now
			kernel.Until = uint64(proc.Monotonic() + w.admit)
			return nil
		},
	}
	r.Observation, err = t.observer.Watch(ctx, request, &kernel)
	r.read(&kernel)
	return r, err
}

// read takes over what the kernel side wrote. It trusts none of its numbers to be in bounds.
func (r *result) read(k *bpf.TimedWatch) {
	r.Started, r.Late, r.Stray = int(min(k.Started, maxTimings)), int(k.Late), int(k.Stray)
	r.Hits, r.Timed = k.Hits, k.Timed[:min(k.Ended, maxTimings)]
	rest := r.Started - len(r.Timed)
	for i := range r.Lost {
		r.Lost[i] = min(int(k.Lost[i]), max(rest, 0))
		rest -= r.Lost[i]
	}
	r.Open = max(rest, 0)
}
