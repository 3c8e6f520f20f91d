package hotspot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A pair of neighbouring instructions does not contain all that a trap costs: the code behind it
// finds caches and predictors emptied, and the next trap after a while finds the kernel's code in
// the same state. So the agent times a function of its own, of known length. What is left of its
// timings after the cost of pairs is the least that any method pays.

// spin is that function: arithmetic that depends on itself, so that it takes the same time every
// time.
//
//go:nosplit
//go:noinline
func spin(n int) uint64 { return turn(n) }

// turn has the loop, and more than two cache lines of code before it: some processors run
// instructions next to a breakpoint far slower (AMD Zen 4: 3.5 times), which is not to be taken for
// what every timing pays.
//
//go:nosplit
//go:noinline
func turn(n int) (x uint64) {
	x = step(step(step(step(step(step(uint64(n)))))))
	for range n {
		x = step(x)
	}
	return x
}

func step(x uint64) uint64 { return (x ^ x>>29) * 6364136223846793005 }

const (
	spinRounds  = 6000 // some 5 us
	settleTimes = 15   // windows of each kind
	settleLeast = 3    // least number of these windows: with little CPU the spinner may not run in some
	settleTime  = time.Second
)

var errSettle = errors.New("a function of the agent itself could not be timed: the agent gets too little CPU time")

// A spinner is a thread that calls spin all the time.
type spinner struct {
	tid  int
	over atomic.Bool
	done chan struct{}
	kept atomic.Uint64
}

func startSpinner() *spinner {
	s := &spinner{done: make(chan struct{})}
	tid := make(chan int)
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		for !s.over.Load() {
			for range 20 {
				s.kept.Store(spin(spinRounds))
			}
			runtime.Gosched() // garbage collections do not wait: see breakpoint.Try
		}
	}()
	s.tid = <-tid
	return s
}

func (s *spinner) stop() {
	s.over.Store(true)
	<-s.done
}

// spinTime is how long a call of spin takes in this thread.
func spinTime() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const calls = 200
	values := make([]float64, calls)
	var x uint64
	for i := range values {
		begin := proc.Monotonic()
		x += spin(spinRounds)
		values[i] = float64(proc.Monotonic() - begin)
	}
	empty := make([]float64, calls)
	for i := range empty {
		begin := proc.Monotonic()
		empty[i] = float64(proc.Monotonic() - begin)
	}
	runtime.KeepAlive(x)
	return middle(values) - middle(empty)
}

// settle finds out what a timing of an invocation has beyond the duration and the cost of pairs, at
// least, and what one of a round has. The latter can be negative: both traps of a round are at the
// same breakpoint, those of a pair at two. And it finds how much slower a loop is next to a
// breakpoint. It takes some 100 ms, none of it of a target.
func (t *timer) settle(ctx context.Context, root proc.Root) error {
	id, err := root.Identify(os.Getpid())
	if err != nil {
		return err
	}
	entry := uint64(reflect.ValueOf(spin).Pointer())
	second, err := secondInstruction(entry, codeAt(spin)[:longestInstruction])
	if err != nil {
		return err
	}
	s := startSpinner()
	defer s.stop()
	w := window{mode: bpf.TimeCallers, addresses: []uint64{entry}, threads: []int{s.tid}, limit: 1, admit: settleTime}
	caller, err := t.callerOfSpin(ctx, id, w)
	if err != nil {
		return err
	}
	modes := []window{
		{mode: bpf.TimePairs, addresses: []uint64{entry, second}},
		{mode: bpf.TimeInvocations, addresses: []uint64{entry, caller}},
		{mode: bpf.TimeRounds, addresses: []uint64{entry}, places: 1}, // the spinner calls in a loop
	}
	if beside := besideTurn(); beside != 0 {
		modes = append(modes, window{mode: bpf.TimeInvocations, addresses: []uint64{entry, caller, beside}})
	}
	w.limit = timedPerWindow
	var excesses, rounds, slower []float64
	for range settleTimes {
		var middles [4]float64
		least := timedPerWindow
		for i, mode := range modes {
			w.mode, w.addresses, w.places = mode.mode, mode.addresses, mode.places
			r, err := t.time(ctx, id, w)
			if err != nil {
				return errors.Join(errSettle, err)
			}
			if least = min(least, len(r.Timed)); len(r.Timed) > 0 {
				middles[i] = middle(rawTimes(r.Timed))
			}
		}
		if least < timedPerWindow/2 {
			continue
		}
		length := spinTime()
		known := middles[0] + length
		excesses, rounds, slower = append(excesses, middles[1]-known), append(rounds, middles[2]-known),
			append(slower, 1+(middles[3]-middles[1])/length)
	}
	if len(excesses) < settleLeast {
		return errSettle
	}
	// Other programs disturb one of the three now and then. What is left is a bound of the error,
	// too: rather some than none.
	t.excess, t.round, t.slower = time.Duration(max(0, median(excesses))), time.Duration(median(rounds)), median(slower)
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// besideTurn is an address next to the loop of turn, in the middle of an instruction: a breakpoint
// there is never hit. 0 if the code cannot be decoded.
func besideTurn() uint64 {
	loops := tightLoops(codeAt(turn), uint64(reflect.ValueOf(turn).Pointer()))
	if runtime.GOARCH != "amd64" || len(loops) == 0 {
		return 0
	}
	return loops[0].end + 1
}

// codeAt is the code of one of the functions above, and what follows it.
func codeAt(function any) []byte {
	const size = 4 * cacheLine // more than turn has
	return unsafe.Slice((*byte)(reflect.ValueOf(function).UnsafePointer()), size)
}

// callerOfSpin is the return address of the spinner's calls.
func (t *timer) callerOfSpin(ctx context.Context, id proc.Identity, w window) (uint64, error) {
	for range settleTimes {
		r, err := t.time(ctx, id, w)
		if err != nil {
			return 0, errors.Join(errSettle, err)
		}
		if len(r.Timed) > 0 {
			return r.Timed[0].Ra, nil
		}
	}
	return 0, errSettle
}

// rawTimes are the lengths of timings in ns, with the cost of the traps.
func rawTimes(list []bpf.Timed) []float64 {
	values := make([]float64, len(list))
	for i := range list {
		values[i] = float64(list[i].Ns) - float64(list[i].Waited)
	}
	return values
}

const longestInstruction = 15

// secondInstruction is where the instruction behind the first one begins, in code at an address.
func secondInstruction(entry uint64, code []byte) (uint64, error) {
	if runtime.GOARCH == "arm64" {
		const size = 4
		return entry + size, nil
	}
	first, err := probesite.Decode(code)
	if err != nil {
		return 0, fmt.Errorf("first instruction of the method: %w", err)
	}
	return entry + uint64(first.Len), nil
}
