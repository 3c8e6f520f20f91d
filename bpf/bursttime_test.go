//go:build linux && amd64

package bpf

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the current thread, as the scheduler has it.
func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// What a call says of its burst: its place in it, and the CPU time since the tick, be the thread on
// the CPU or off it.
func TestKernelBurstPosition(t *testing.T) {
	var off []string
	for range 5 { // the scheduler's clock leaves out what the hypervisor takes, which can be more than the program does
		if off = burstPosition(t); len(off) == 0 {
			return
		}
	}
	t.Error(strings.Join(off, "\n"))
}

// burstPosition samples a burst and says which calls have a CPU time that is off.
func burstPosition(t *testing.T) (off []string) {
	t.Helper()
	b := newBurster(t)
	r, err := ringbuf.NewReader(b.Events)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := func() (calls []Call) {
		t.Helper()
		for {
			r.SetDeadline(time.Now())
			rec, err := r.Read()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return calls
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := DecodeCall(rec.RawSample)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, *c)
		}
	}
	read()
	b.rate(t, 10, 3, 0)
	b.announce(t, testSlot)
	outer := threadTime(t)
	b.tick(t, 3)
	inner := threadTime(t)
	var most, least []time.Duration
	for n := range 24 {
		if n == 10 {
			b.tick(t, 0) // finds the burst under way
		}
		if n%5 == 0 {
			time.Sleep(20 * time.Millisecond) // It costs no CPU time.
			for end := threadTime(t) + time.Millisecond; threadTime(t) < end; {
			}
		}
		before := threadTime(t) - inner
		if b.method(t, uint64(n)) {
			least, most = append(least, before), append(most, threadTime(t)-outer)
		}
	}
	calls := read()
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}
	for i, c := range calls {
		if c.Stride != 10 || c.Made != uint32(4+10*i) || c.Callee != uint64(3+10*i) || c.Burst != calls[0].Burst {
			t.Errorf("call %d: %+v", i, c)
		}
		if want := []uint32{1, 2, 2}[i]; c.Ticks != want {
			t.Errorf("call %d: %d ticks, want %d", i, c.Ticks, want)
		}
		// The scheduler's clock leaves out what interrupts took, too: some tolerance.
		if spent := time.Duration(c.Spent); spent < least[i]*9/10 || spent > most[i]*11/10 {
			off = append(off, fmt.Sprintf("call %d after %v of CPU time, want %v to %v", i, spent, least[i], most[i]))
		}
	}
	return off
}
