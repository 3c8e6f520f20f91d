package hotspot

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Every invocation that was taken is in one place, whatever the kernel side's numbers are.
func TestResultRead(t *testing.T) {
	for _, test := range []struct {
		k    bpf.TimedWatch
		want string // timed, lost, open
	}{
		{bpf.TimedWatch{}, "0 [0 0 0 0 0] 0"},
		{bpf.TimedWatch{Started: 10, Ended: 4, Lost: [5]uint32{1, 2, 0, 0}}, "4 [1 2 0 0 0] 3"},
		{bpf.TimedWatch{Started: math.MaxUint32, Ended: math.MaxUint32, Lost: [5]uint32{1, 2, 3, 4}},
			"128 [0 0 0 0 0] 0"},
		{bpf.TimedWatch{Started: 5, Ended: 4, Lost: [5]uint32{0, 7, 1, 0}}, "4 [0 1 0 0 0] 0"},
	} {
		var r result
		r.read(&test.k)
		sum := len(r.Timed) + r.Open
		for _, n := range r.Lost {
			sum += n
		}
		if got := fmt.Sprint(len(r.Timed), r.Lost, r.Open); got != test.want || sum != r.Started {
			t.Errorf("%s of %d, want %s", got, r.Started, test.want)
		}
	}
}

func TestDuration(t *testing.T) {
	one := bpf.Timed{Ns: 100_000, Waited: 20_000, Inner: 2, InnerNs: 3_000}
	if got, want := duration(&one, 9*time.Microsecond), 50*time.Microsecond; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := duration(&bpf.Timed{Ns: 8_000}, 9*time.Microsecond); got != -time.Microsecond {
		t.Errorf("a timing shorter than its cost: %v", got)
	}
}

// The cost is the mean of windows, its error that of this mean. Single pairs that took far longer
// do not matter.
func TestCost(t *testing.T) {
	var c cost
	if mean, within := c.get(); mean != 0 || within != 0 || c.ready() {
		t.Errorf("%v %v of nothing", mean, within)
	}
	for w := range 8 {
		pairs := make([]bpf.Timed, timedPerWindow)
		for i := range pairs {
			pairs[i] = bpf.Timed{Ns: uint64(9_000 + 200*(w%2)), Waited: 0}
		}
		pairs[3].Ns = 5_000_000
		c.add(pairs)
	}
	mean, within := c.get()
	if mean != 9_100 || within < 30 || within > 50 || !c.ready() || c.enough() {
		t.Errorf("%v within %v", mean, within)
	}
}

func TestCallers(t *testing.T) {
	var c callers
	if c.commonest(1, 2) != nil || c.someThreads(2) != nil {
		t.Error("callers of nothing")
	}
	arrivals := func(ras ...uint64) (list []bpf.Timed) {
		for i, ra := range ras {
			list = append(list, bpf.Timed{Ra: ra, Tid: uint32(i%3) + 7})
		}
		return list
	}
	c.learn(arrivals(10, 10, 10, 20, 20, 30, 0, 0, 0, 0, 5, 5, 5, 5))
	if got := c.commonest(5, 2); !slices.Equal(got, []uint64{10, 20}) {
		t.Errorf("%v", got)
	}
	c.learn(arrivals(30, 30, 30))
	if got := c.commonest(5, 2); !slices.Equal(got, []uint64{30, 10}) {
		t.Errorf("%v after others called", got)
	}
	if got := c.someThreads(2); len(got) != 2 || got[0] == got[1] {
		t.Errorf("threads %v", got)
	}
	for range 20 {
		c.learn(arrivals(30))
	}
	if len(c.returns) != 1 || len(c.threads) != 1 {
		t.Errorf("what is long gone is remembered: %+v", c)
	}
}

// Windows wait longer while invocations are cut off, and look for other callers when there are
// none.
func TestVersionLearn(t *testing.T) {
	v := version{wait: firstWait}
	v.learn(&result{Started: 4, Open: 1})
	if v.wait != 2*firstWait {
		t.Errorf("wait %v", v.wait)
	}
	for range 10 {
		v.learn(&result{Started: 4, Open: 1})
	}
	if v.wait != longestWait {
		t.Errorf("wait %v", v.wait)
	}
	v.longest = 20 * time.Millisecond
	v.learn(&result{Started: 4, Timed: make([]bpf.Timed, 4)})
	if v.wait != waitTimes*v.longest || v.windows != 0 {
		t.Errorf("wait %v after the longest of %v", v.wait, v.longest)
	}
	v.learn(&result{})
	if v.windows != surveyEvery {
		t.Error("nobody called, and no survey follows")
	}
}

func TestWindowCheck(t *testing.T) {
	good := window{mode: bpf.TimeInvocations, addresses: []uint64{1, 2}, threads: []int{3}, limit: 4, admit: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for i, change := range []func(*window){
		func(w *window) { w.addresses = nil }, func(w *window) { w.addresses = make([]uint64, 4) },
		func(w *window) { w.threads = nil },
		func(w *window) { w.threads = make([]int, maxThreads+1) }, func(w *window) { w.limit = 0 },
		func(w *window) { w.limit = maxTimings + 1 },
		func(w *window) { w.admit = 0 }, func(w *window) { w.wait = time.Hour }, func(w *window) { w.wait = -1 },
		func(w *window) { w.mode = bpf.TimeRounds }, func(w *window) { w.places = 1 },
		func(w *window) { w.mode, w.places = bpf.TimeRounds, 3 },
	} {
		w := good
		change(&w)
		if w.check() == nil {
			t.Errorf("change %d is accepted", i)
		}
	}
}

// A few calls in a slice that was ended early say nothing, and many of them do.
func TestPace(t *testing.T) {
	const hit = 10 * time.Microsecond
	var p pace
	if _, slowed := p.add(7, time.Millisecond, hit); slowed {
		t.Error("too often, by a millisecond")
	}
	if rate, slowed := p.add(7, 99*time.Millisecond, hit); slowed || rate != 140 {
		t.Errorf("%v a second, too often: %v", rate, slowed)
	}
	for i := 1; i <= 4; i++ {
		rate, slowed := p.add(60, 10*time.Millisecond, hit)
		if slowed != (i == 4) || math.Round(rate) != 6000 {
			t.Errorf("after %d slices: %v a second, too often: %v", i, rate, slowed)
		}
	}
	if rate, slowed := p.add(0, shortSlice, hit); slowed || rate != 0 {
		t.Errorf("then: %v a second, too often: %v", rate, slowed)
	}
}
