package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// pretend has a plan's probes hit n times more.
func (k *kernelSide) pretend(t *testing.T, p *attachedPlan, n uint64) {
	t.Helper()
	for _, cookie := range p.cookies {
		var counts []bpf.ProbeCount
		if err := k.objects.ProbeCounts.Lookup(cookie, &counts); err != nil {
			t.Fatal(err)
		}
		counts[0].Hits += n
		if err := k.objects.ProbeCounts.Put(cookie, counts); err != nil {
			t.Fatal(err)
		}
	}
}

// pretendCost has so many records of all probes taken that long each.
func (k *kernelSide) pretendCost(t *testing.T, records uint64, each time.Duration) {
	t.Helper()
	for counter, n := range map[bpf.Counter]uint64{bpf.ObservationsAttempted: records, bpf.NsProbes: records * uint64(each)} {
		var counts []uint64
		if err := k.agent.objects.Counters.Lookup(uint32(counter), &counts); err != nil {
			t.Fatal(err)
		}
		counts[0] += n
		if err := k.agent.objects.Counters.Put(uint32(counter), counts); err != nil {
			t.Fatal(err)
		}
	}
}

// rateOf is how many hits of a plan the kernel side is to tell: one in that many.
func (k *kernelSide) rateOf(t *testing.T, p *attachedPlan) uint32 {
	t.Helper()
	var rate bpf.ProbeRate
	if err := k.objects.Probes.Lookup(p.cookies[0], &rate); err != nil {
		t.Fatal(err)
	}
	return rate.Every
}

// A plan is thinned out as its hits get more, rests when even hits that are not told cost too much, longer every time, and is
// attached again.
func TestTune(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	p := k.plan(t, Allocations, k.objects.ValueProbe) // which counts each hit
	k.place(t, p)
	k.plans = []*attachedPlan{p}
	now := time.Duration(0)
	// Nobody's CPU time is known: a tenth of a CPU is taken, of which the budget is 1%: a millisecond a second.
	second := func(hits uint64) {
		t.Helper()
		k.pretend(t, p, hits)
		k.pretendCost(t, 10, 10*time.Microsecond)
		now += time.Second
		k.tune(now, time.Second)
	}
	second(10)
	if p.every != 1 || k.rateOf(t, p) != 1 || p.resting() {
		t.Errorf("10 hits a second: one in %d, the kernel side says %d", p.every, k.rateOf(t, p))
	}
	// At a microsecond each, 400 leave 0.6 of the budget to records; at 10 us more for each of these, 60 can be told.
	second(400)
	thin := p.every
	if p.resting() || thin != 7 || k.rateOf(t, p) != thin {
		t.Errorf("400 hits a second: one in %d, the kernel side says %d, resting: %v", thin, k.rateOf(t, p), p.resting())
	}
	second(400)
	if p.every != thin {
		t.Errorf("the same load: one in %d, then %d", thin, p.every)
	}
	second(10)
	if p.every != 1 || k.rateOf(t, p) != 1 {
		t.Errorf("10 hits a second again: one in %d", p.every)
	}
	for i, rest := range []time.Duration{firstRest, 2 * firstRest, 4 * firstRest} {
		second(5000)
		if !p.resting() || p.until != now+rest || p.rest != rest {
			t.Fatalf("5000 hits a second: rests %v until %v, want %v", p.rest, p.until-now, rest)
		}
		if len(k.notes()) != 1 || !strings.Contains(k.notes()[0], "probe 0 is hit 5,00") {
			t.Errorf("notes %q", k.notes())
		}
		before := k.hits(t)
		probed()
		if k.hits(t) != before {
			t.Error("a plan that rests is hit")
		}
		now = p.until - time.Nanosecond
		k.tune(now, time.Second)
		if !p.resting() {
			t.Error("the rest ended early")
		}
		now = p.until
		k.tune(now, time.Second)
		if p.resting() {
			t.Fatalf("rest %d did not end", i)
		}
		probed()
		if k.hits(t) == before {
			t.Error("a plan whose rest is over is not hit")
		}
	}
	second(10)
	if p.rest >= 4*firstRest {
		t.Errorf("a plan that behaves would rest for %v again", p.rest)
	}
}

// What is wanted at any price, or is rare, keeps its rate; perf events are thinned out, and do not rest.
func TestTuneExceptions(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	fixed, exact, pauses := k.plan(t, Values, k.objects.ValueProbe), k.plan(t, Allocations, k.objects.ObjectAllocated), k.plan(t, Pauses, k.objects.SafepointEnd)
	fixed.fixed, fixed.every, exact.exact = true, 7, true
	faults := &attachedPlan{eventPlan: eventPlan{kind: Faults, of: "page faults"}, cookies: []uint32{bpf.ProbeFault}, every: 1, perf: true}
	k.place(t, fixed, exact, pauses)
	k.plans = []*attachedPlan{fixed, exact, pauses, faults}
	for _, p := range k.plans {
		k.pretend(t, p, 1_000_000)
	}
	k.tune(time.Second, time.Second)
	if fixed.resting() || exact.resting() || pauses.resting() || faults.resting() {
		t.Error("one of them rests")
	}
	if fixed.every != 7 || exact.every != 1 || pauses.every != 1 || faults.every != 1_000_000/faultLookups {
		t.Errorf("one in %d, %d, %d, and %d page faults", fixed.every, exact.every, pauses.every, faults.every)
	}
	k.tune(2*time.Second, time.Second)
	if faults.every != 1_000_000/faultLookups/2 {
		t.Errorf("a second without page faults: one in %d is told", faults.every)
	}
}

// Plans of one kind share its budget by what they would take.
func TestTuneShares(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	a, b, other := k.plan(t, Locks, k.objects.ValueProbe), k.plan(t, Locks, k.objects.ValueProbe), k.plan(t, Values, k.objects.ValueProbe)
	k.plans = []*attachedPlan{a, b, other}
	k.place(t, k.plans...)
	k.pretendCost(t, 10, 10*time.Microsecond)
	k.pretend(t, a, 150)
	k.pretend(t, b, 50)
	k.pretend(t, other, 40)
	k.tune(time.Second, time.Second)
	// Of half a millisecond each: 200 hits leave 300 us for 30 records of 10 us, and 40 need 440 us in all.
	if a.every != 7 || b.every != 7 || other.every != 1 {
		t.Errorf("one in %d, %d and %d", a.every, b.every, other.every)
	}
}

// What costs too much in a tenth of a second is not waited for until the second is over.
func TestCheck(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	p, fixed := k.plan(t, Values, k.objects.ValueProbe), k.plan(t, Values, k.objects.ValueProbe)
	fixed.fixed = true
	k.place(t, p, fixed)
	k.plans = []*attachedPlan{p, fixed}
	// A tenth of a CPU is taken to be used, of which a second's budget is a millisecond. Beside the trap a record takes 10 us.
	k.pretendCost(t, 10, 10*time.Microsecond)
	k.pretend(t, fixed, 1_000_000)
	k.pretend(t, p, 50)
	if k.check(checkInterval, checkInterval); p.resting() || fixed.resting() || p.every != 1 {
		t.Errorf("half of a second's budget is spent: one in %d, resting: %v", p.every, p.resting())
	}
	k.pretend(t, p, 450)
	if k.check(2*checkInterval, 2*checkInterval); p.resting() || p.every < 10 || k.rateOf(t, p) != p.every {
		t.Errorf("more than a second's budget is spent on records: one in %d, resting: %v", p.every, p.resting())
	}
	k.pretend(t, p, 600)
	if k.check(3*checkInterval, 3*checkInterval); !p.resting() || p.until != 3*checkInterval+firstRest || fixed.resting() {
		t.Errorf("the budget of a second is half spent on hits alone: rests until %v, what is fixed rests: %v", p.until, fixed.resting())
	}
	k.tune(p.until, time.Second)
	if p.resting() {
		t.Fatal("the rest did not end")
	}
	if k.check(p.until+checkInterval, checkInterval); p.resting() {
		t.Error("rests again for what was before")
	}
}

func TestAdopt(t *testing.T) {
	for _, c := range []struct{ before, every, want uint32 }{
		{1, 1, 1}, {1, 2, 2}, {10, 15, 10}, {10, 16, 16}, {10, 7, 10}, {10, 6, 6}, {97, 1, 1}, {97, 101, 97},
	} {
		p := &attachedPlan{every: c.before, rest: firstRest}
		if p.adopt(c.every); p.every != c.want || p.rest != firstRest/2 {
			t.Errorf("%d, then %d: %d, rest %v; want %d", c.before, c.every, p.every, p.rest, c.want)
		}
	}
}

func TestRecordCost(t *testing.T) {
	e := &eventProbes{}
	e.spent[bpf.ObservationsAttempted], e.spent[bpf.NsProbes] = 10, 1000
	now := e.spent
	if e.noteRecordCost(&now); e.record != 0 {
		t.Errorf("no record took %v", e.record)
	}
	now[bpf.ObservationsAttempted], now[bpf.NsProbes] = 14, 9000
	if e.noteRecordCost(&now); e.record != 2000 {
		t.Errorf("a record took %v, want 2µs", e.record)
	}
}

// A plan that cannot be attached again when its rest is over rests once more, and says why.
func TestWakeInVain(t *testing.T) {
	k := newKernelSide(t)
	p := k.plan(t, Allocations, k.agent.objects.Tick) // which is no program of a probe
	if err := p.find(nil, k.register); err != nil {
		t.Fatal(err)
	}
	p.rest, p.until = firstRest, 100*time.Second
	k.wake(p, 99*time.Second)
	if p.why != nil {
		t.Errorf("woken early: %v", p.why)
	}
	k.wake(p, 100*time.Second)
	if p.why == nil || p.until != 100*time.Second+firstRest || !p.resting() {
		t.Errorf("%v, until %v", p.why, p.until)
	}
}
