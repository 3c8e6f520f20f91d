//go:build linux && amd64

package hotspot

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// newTestTimer is a timer of this process.
func newTestTimer(t *testing.T) (*timer, proc.Identity) {
	t.Helper()
	needs.Root(t, "to set breakpoints")
	breakpoints.Need(t)
	tm, err := newTimer(t.Context(), proc.DefaultRoot, watch.New(proc.DefaultRoot))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tm.Close(); err != nil {
			t.Error(err)
		}
	})
	id, err := proc.DefaultRoot.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return tm, id
}

// spinning calls a function in a thread of its own until the test ends, and returns the thread.
func spinning(t *testing.T, call func()) int {
	t.Helper()
	var over atomic.Bool
	tid, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and ends with the goroutine
		tid <- unix.Gettid()
		for !over.Load() {
			call()
		}
	}()
	t.Cleanup(func() {
		over.Store(true)
		<-done
	})
	return <-tid
}

// timedSelf watches a function of this process that a thread calls.
func timedSelf(t *testing.T, tm *timer, id proc.Identity, f any, tid, limit int) result {
	t.Helper()
	entry := uint64(reflect.ValueOf(f).Pointer())
	w := window{mode: bpf.TimeCallers, addresses: []uint64{entry}, threads: []int{tid}, limit: maxTimings,
		admit: time.Second}
	r, err := tm.time(t.Context(), id, w)
	if err != nil {
		t.Fatal(err)
	}
	var c callers
	c.learn(r.Timed)
	if r.Started != len(r.Timed)+r.Open || len(r.Timed) == 0 || len(c.threads) != 1 || c.threads[tid] == 0 {
		t.Fatalf("%d callers of %d arrivals, threads %v", len(r.Timed), r.Started, c.threads)
	}
	w.mode, w.addresses, w.limit, w.wait = bpf.TimeInvocations, append(w.addresses, c.commonest(entry, maxCallers)...),
		limit, time.Second
	if r, err = tm.time(t.Context(), id, w); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, n := range r.Lost {
		lost += n
	}
	if r.Started != len(r.Timed)+lost+r.Open || r.Started != limit && !r.timeout(w) {
		t.Errorf("%d started, %d timed, lost %v, %d open, after %v", r.Started, len(r.Timed), r.Lost, r.Open, r.Length)
	}
	return r
}

// timeout reports whether the time ended the window.
func (r *result) timeout(w window) bool { return r.Length >= w.admit }

//go:noinline
func itself(depth, n int) uint64 {
	x := spin(n)
	if depth == 0 {
		return x
	}
	return x + itself(depth-1, n)
}

//go:noinline
func throws(n int) uint64 {
	x := spin(n)
	if n%2 == 0 {
		panic("expected")
	}
	return x
}

func caught(n int) (x uint64) {
	defer func() { _ = recover() }()
	return throws(n)
}

// Invocations of a method that calls itself: those of each level take as long as the levels below
// them, and those too deep are counted.
func TestTimeRecursion(t *testing.T) {
	tm, id := newTestTimer(t)
	for _, depth := range []int{3, 10} {
		var kept atomic.Uint64
		tid := spinning(t, func() { kept.Store(itself(depth, 2000)) })
		r := timedSelf(t, tm, id, itself, tid, 88)
		deep := r.Lost[bpf.LostDeep]
		if want := max(0, depth+1-bpf.MaxTimedDepth); (want > 0) != (deep > 0) {
			t.Errorf("depth %d: %d too deep", depth, deep)
		}
		if len(r.Timed) < 40 || r.Lost[bpf.LostUnwound] > 2 {
			t.Errorf("depth %d: %d timed, lost %v", depth, len(r.Timed), r.Lost)
		}
		inner := map[uint32]int{}
		for i := range r.Timed {
			inner[r.Timed[i].Inner]++
		}
		// Each invocation that is timed has two traps for each one below it, or one if that was too
		// deep.
		if inner[0] == 0 && depth == 3 || inner[2] == 0 && depth == 3 {
			t.Errorf("depth %d: traps within timings: %v", depth, inner)
		}
	}
}

// An invocation that ends by a panic does not end at the return address.
func TestTimeUnwound(t *testing.T) {
	tm, id := newTestTimer(t)
	n := 0
	var kept atomic.Uint64
	tid := spinning(t, func() { n++; kept.Store(caught(2000 + n)) })
	r := timedSelf(t, tm, id, throws, tid, 60)
	if lost := r.Lost[bpf.LostUnwound]; lost < 25 || lost > 35 || len(r.Timed) < 25 {
		t.Errorf("%d timed, lost %v, want half of them unwound", len(r.Timed), r.Lost)
	}
}

//go:noinline
func looping(n int) (x uint64) {
	for i := range n {
		x += spin(1000 + 7*i)
	}
	return x
}

// Rounds of a loop: from one arrival in it to the next, but not across its end. By how much a
// register grew is that of the round.
func TestTimeRounds(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the registers of amd64 are read")
	}
	tm, id := newTestTimer(t)
	const iterations = 6
	var kept atomic.Uint64
	tid := spinning(t, func() { kept.Store(looping(iterations)) })
	// The first argument is in this register.
	operand, err := attach.Operand(elffile.Operand{Kind: elffile.OperandReg, Size: -4, Reg: elffile.RAX})
	if err != nil {
		t.Fatal(err)
	}
	counter := bpf.TimingOperand(operand)
	inside, outside := uint64(reflect.ValueOf(spin).Pointer()), uint64(reflect.ValueOf(looping).Pointer())
	w := window{
		mode: bpf.TimeRounds, addresses: []uint64{inside, outside}, places: 1, counter: &counter, threads: []int{tid},
		limit: 120, admit: time.Second, wait: time.Second,
	}
	r, err := tm.time(t.Context(), id, w)
	if err != nil {
		t.Fatal(err)
	}
	// Of six arrivals one begins no round that ends.
	left := r.Lost[bpf.LostLeft]
	if len(r.Timed)+left+r.Open != r.Started || len(r.Timed) < 5*(left-2) || len(r.Timed) > 5*(left+2) {
		t.Errorf("%d timed, lost %v, %d open of %d", len(r.Timed), r.Lost, r.Open, r.Started)
	}
	if calls, hits := int(r.Hits[1]), int(r.Hits[0]); hits < iterations*(calls-1) || hits > iterations*(calls+1) ||
		calls < 10 {
		t.Errorf("%d arrivals in the loop and %d outside, want %d to one", hits, calls, iterations)
	}
	for i := range r.Timed {
		if moved := int64(r.Timed[i].Ra); moved != 7 {
			t.Errorf("the argument grew by %d, want 7", moved)
		}
	}
	w.counter = nil
	if r, err = tm.time(t.Context(), id, w); err != nil {
		t.Fatal(err)
	}
	if len(r.Timed) == 0 || r.Timed[0].Ra != 0 {
		t.Errorf("without a counter: %d rounds", len(r.Timed))
	}
}

// Calls from other places than those that are watched are counted.
func TestTimeElsewhere(t *testing.T) {
	tm, id := newTestTimer(t)
	var kept atomic.Uint64
	tid := spinning(t, func() {
		kept.Store(spin(1000))
		kept.Store(spin(1001))
		kept.Store(spin(1002))
		kept.Store(spin(1003))
	})
	r := timedSelf(t, tm, id, spin, tid, 80)
	if n := r.Lost[bpf.LostUnwatched]; n < 30 || n > 50 {
		t.Errorf("%d timed, lost %v: want half of them from elsewhere", len(r.Timed), r.Lost)
	}
}

// A window that nothing happens in ends with its time, and one that is cancelled at once.
func TestTimeSilence(t *testing.T) {
	tm, id := newTestTimer(t)
	tid := spinning(t, func() { time.Sleep(time.Millisecond) })
	entry := uint64(reflect.ValueOf(spin).Pointer())
	w := window{mode: bpf.TimeInvocations, addresses: []uint64{entry, entry + 1}, threads: []int{tid}, limit: 10,
		admit: 20 * time.Millisecond, wait: 20 * time.Millisecond}
	r, err := tm.time(t.Context(), id, w)
	if err != nil || r.Started+len(r.Timed)+r.Open+r.Stray > 0 || r.Length < w.admit+w.wait {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tm.time(ctx, id, w); err == nil {
		t.Error("a window was open although it was cancelled")
	}
}

// What settle finds is a small part of what a trap costs.
func TestSettle(t *testing.T) {
	tm, _ := newTestTimer(t)
	t.Logf("%v of %v; a loop next to a breakpoint is %.2f times slower", tm.excess, tm.observer.HitTime(), tm.slower)
	if tm.excess > tm.observer.HitTime()/4 {
		t.Errorf("%v beyond the cost of pairs, of %v", tm.excess, tm.observer.HitTime())
	}
}
