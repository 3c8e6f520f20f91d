package probes

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// pretend adds n hits to a plan's probes.
func (k *kernelSide) pretend(t *testing.T, p *attachedPlan, n uint64) {
	t.Helper()
	for _, cookie := range p.cookies {
		var counts []bpf.ProbeCount
		if err := k.Programs.ProbeCounts.Lookup(cookie, &counts); err != nil {
			t.Fatal(err)
		}
		counts[0].Hits += n
		if err := k.Programs.ProbeCounts.Put(cookie, counts); err != nil {
			t.Fatal(err)
		}
	}
}

// pretendCost simulates that many records of all probes, each of that duration.
func (k *kernelSide) pretendCost(t *testing.T, records uint64, each time.Duration) {
	t.Helper()
	for counter, n := range map[bpf.Counter]uint64{bpf.ObservationsAttempted: records,
		bpf.NsProbes: records * uint64(each)} {
		var counts []uint64
		if err := k.config.Objects.Counters.Lookup(uint32(counter), &counts); err != nil {
			t.Fatal(err)
		}
		counts[0] += n
		if err := k.config.Objects.Counters.Put(uint32(counter), counts); err != nil {
			t.Fatal(err)
		}
	}
}

// rateOf returns N if the kernel side records one hit in N of a plan.
func (k *kernelSide) rateOf(t *testing.T, p *attachedPlan) uint32 {
	t.Helper()
	var rate bpf.ProbeRate
	if err := k.Programs.Probes.Lookup(p.cookies[0], &rate); err != nil {
		t.Fatal(err)
	}
	return rate.Every
}

// Hits of free monitors have no record, so that more of the others can be recorded.
func TestTuneFree(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	p := k.plan(t, profile.Allocations, k.Programs.ValueProbe)
	k.enrol(t, p)
	now := time.Duration(0)
	second := func(free uint64) uint32 {
		t.Helper()
		k.pretend(t, p, 800)
		var counts []bpf.ProbeCount
		if err := k.Programs.ProbeCounts.Lookup(p.cookies[0], &counts); err != nil {
			t.Fatal(err)
		}
		counts[0].Told, counts[0].Free = counts[0].Told+100, counts[0].Free+free
		if err := k.Programs.ProbeCounts.Put(p.cookies[0], counts); err != nil {
			t.Fatal(err)
		}
		k.pretendCost(t, 10, 10*time.Microsecond)
		now += time.Second
		k.tune(now, time.Second)
		return p.every
	}
	// 2 ms a second, of which traps take 0.8: 120 records at 10 us, of 800 hits or of 80.
	if every := second(0); every < 7 {
		t.Errorf("no monitor was free: one hit in %d is recorded", every)
	}
	if every := second(90); every != 1 {
		t.Errorf("nine monitors in ten were free: one hit in %d is recorded", every)
	}
	if every := second(0); every < 7 {
		t.Errorf("no monitor is free any more: one hit in %d is recorded", every)
	}
}

// A plan is thinned out as its hits become more frequent. It is observed in slices of time when
// even unrecorded hits are too expensive. When they no longer are, it returns in steps to being
// observed all the time.
func TestTune(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	p := k.plan(t, profile.Allocations, k.Programs.ValueProbe) // it counts each hit
	k.enrol(t, p)
	now := time.Duration(0)
	// No CPU times are known: the minimum budget of 0.2 % of a CPU remains, which is 2 ms a second.
	second := func(hits uint64) {
		t.Helper()
		k.pretend(t, p, hits)
		k.pretendCost(t, 10, 10*time.Microsecond)
		now += time.Second
		k.tune(now, time.Second)
	}
	second(10)
	if p.every != 1 || k.rateOf(t, p) != 1 || p.silent() {
		t.Errorf("10 hits a second: one in %d, the kernel side says %d", p.every, k.rateOf(t, p))
	}
	// At a microsecond each, 800 leave 0.6 of the budget to records; at 10 us more for each of
	// these, 120 can be recorded.
	second(800)
	thin := p.every
	if p.silent() || thin != 7 || k.rateOf(t, p) != thin {
		t.Errorf("800 hits a second: one in %d, the kernel side says %d, silent: %v", thin, k.rateOf(t, p), p.silent())
	}
	second(800)
	if p.every != thin {
		t.Errorf("the same load: one in %d, then %d", thin, p.every)
	}
	second(10)
	if p.every != 1 || k.rateOf(t, p) != 1 {
		t.Errorf("10 hits a second again: one in %d", p.every)
	}
	second(10_000) // take ten times as much as unrecorded hits may
	if d := &p.duty; !p.silent() || d.Slices != 10 || d.Length != 100*time.Millisecond || k.rateOf(t, p) != 0 {
		t.Fatalf("10,000 hits a second: one slice of %d, of %v, the kernel side says %d", d.Slices, d.Length,
			k.rateOf(t, p))
	}
	is := func(hit bool) {
		t.Helper()
		before := k.hits(t)
		probed()
		if (k.hits(t) != before) != hit {
			t.Errorf("hit: %v, want %v", !hit, hit)
		}
	}
	is(false)
	// The first slice of each cycle is drawn, and at most half of the load is forgotten.
	for _, want := range []int{5, 3, 2, 1} {
		k.turn(now)
		is(true)
		// In a slice the plan may take the budget of the whole cycle: 20 ms a second, of which half
		// is for records.
		if p.duty.On && p.duty.Slices == 10 && (p.every != 11 || k.rateOf(t, p) != 11) {
			t.Errorf("one in %d hits of a slice, the kernel side says %d", p.every, k.rateOf(t, p))
		}
		end := p.duty.To
		k.turn(end - 1)
		is(true)
		k.turn(end)
		is(false)
		k.turn(p.duty.Begin + p.duty.Cycle() - 1)
		is(false)
		now = p.duty.Begin + p.duty.Cycle()
		k.turn(now)
		if max(p.duty.Slices, 1) != want {
			t.Fatalf("after a slice without hits: one of %d, want %d", p.duty.Slices, want)
		}
	}
	is(true)
	parts := fold.Covered(nil, k.Covers.Sums(now), 0, now, &profile.EventCounts{})
	if notes := parts.Notes(func(func(*fold.EventSet) bool) {}); len(notes) != 1 ||
		!strings.Contains(notes[0], "probe 0 is hit 10,000") ||
		!strings.HasPrefix(notes[0], "events of tests (alloc) were observed ") {
		t.Errorf("notes %q", notes)
	}
}

// A process without measurements does not lose its probes for using no CPU.
func TestTuneUnmeasured(t *testing.T) {
	k := newKernelSide(t)
	k.Options.Budget = 0.01
	k.trap.Store(int64(time.Microsecond))
	p := k.plan(t, profile.Allocations, k.Programs.ValueProbe)
	k.enrol(t, p)
	k.pretend(t, p, 4000)
	k.pretendCost(t, 10, 10*time.Microsecond)
	k.now = 100 * time.Second
	k.used = budget.Times{}
	k.config.GuestTimes = func() budget.Times {
		used, ok := proc.CPUTime(os.Getpid())
		if !ok {
			t.Error("the CPU time of the test is not known")
		}
		return budget.Times{7: used}
	}
	if k.check(k.now, checkInterval); p.silent() {
		t.Error("is not observed all the time, before the CPU time of its process is known")
	}
	if k.tune(k.now+time.Second, time.Second); p.silent() {
		t.Error("is not observed all the time, before the CPU time of its process was measured for a second")
	}
	k.pretend(t, p, 4000)
	if k.tune(k.now+time.Second, time.Second); !p.silent() {
		t.Error("is observed all the time, although its process is nearly idle")
	}
}

// Plans requested at any cost, or rare, keep their rate; perf events are thinned out, but never
// paused.
func TestTuneExceptions(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	fixed, exact, pauses := k.plan(t, profile.Values, k.Programs.ValueProbe),
		k.plan(t, profile.Allocations, k.Programs.ObjectAllocated), k.plan(t, profile.Pauses, k.Programs.SafepointEnd)
	fixed.fixed, fixed.every, exact.exact = true, 7, true
	faults := &attachedPlan{eventPlan: eventPlan{kind: profile.Faults, of: "page faults"},
		cookies: []uint32{bpf.ProbeFault}, every: 1, perf: true}
	k.place(t, fixed, exact, pauses)
	k.plans = []*attachedPlan{fixed, exact, pauses, faults}
	for _, p := range k.plans {
		k.pretend(t, p, 1_000_000)
	}
	k.tune(time.Second, time.Second)
	if fixed.silent() || exact.silent() || pauses.silent() || faults.silent() {
		t.Error("one of them is not observed all the time")
	}
	if fixed.every != 7 || exact.every != 1 || pauses.every != 1 || faults.every != 1_000_000/faultLookups {
		t.Errorf("one in %d, %d, %d, and %d page faults", fixed.every, exact.every, pauses.every, faults.every)
	}
	k.tune(2*time.Second, time.Second)
	if faults.every != 1_000_000/faultLookups/2 {
		t.Errorf("a second without page faults: one in %d is recorded", faults.every)
	}
}

// Plans of one kind share its budget max-min fair: one with few hits is recorded whole.
func TestTuneShares(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	a, b, other := k.plan(t, profile.Locks, k.Programs.ValueProbe), k.plan(t, profile.Locks, k.Programs.ValueProbe),
		k.plan(t, profile.Values, k.Programs.ValueProbe)
	k.plans = []*attachedPlan{a, b, other}
	k.place(t, k.plans...)
	k.pretendCost(t, 10, 10*time.Microsecond)
	k.pretend(t, a, 400)
	k.pretend(t, b, 50)
	k.pretend(t, other, 160)
	k.tune(time.Second, time.Second)
	// Of 2 ms each: 50 hits need 0.55 ms, 10 % more are kept for them, and of the other 1.4 ms
	// passing over takes 0.4 and 100 records of 10 us the rest. 160 hits need 1.76 ms in all.
	if a.every != 5 || b.every != 1 || other.every != 1 {
		t.Errorf("one in %d, %d and %d", a.every, b.every, other.every)
	}
}

// Whatever others of the kind need, a plan that needs less than an equal part has all of its hits
// recorded, and all parts together are the kind's budget.
func TestPart(t *testing.T) {
	for _, busy := range [][]float64{{1300}, {13_000, 1300}, {1e6, 1e6, 1e6}, {1, 5}, {}} {
		e := &Probes{Options: Options{Budget: 0.01, Kinds: [profile.EventKinds]bool{profile.Locks: true,
			profile.Values: true}}, cpus: 1.1, record: 10 * time.Microsecond}
		loads, all := planLoads(nil), 0.0
		for _, rate := range append([]float64{18}, busy...) {
			l := planLoad{plan: &attachedPlan{eventPlan: eventPlan{kind: profile.Locks}}, rate: rate,
				count: 2 * time.Microsecond}
			l.full = rate * (l.count + e.record).Seconds()
			loads = append(loads, l)
		}
		loads = append(loads, planLoad{plan: &attachedPlan{eventPlan: eventPlan{kind: profile.Values}}, rate: 1e6,
			count: time.Microsecond, full: 10})
		for _, l := range loads[:len(loads)-1] {
			all += e.part(loads, l)
		}
		if math.Abs(all-1) > 1e-9 {
			t.Errorf("next to %v hits a second: all parts are %v of the budget", busy, all)
		}
		if every, err := e.affordable(loads[0], e.part(loads, loads[0])); every != 1 || err != nil {
			t.Errorf("next to %v hits a second: one in %d of 18 is recorded, %v", busy, every, err)
		}
		// It is observed all the time again, too, if it was not.
		if n := e.allowance(profile.Locks, e.part(loads, loads[0].times(Steady)),
			1).SlicesFor(e.loadOf(loads[0].times(Steady)), 100); n != 1 {
			t.Errorf("next to %v hits a second: one slice of %d", busy, n)
		}
	}
}

// A probe with few hits is recorded whole, all the time, next to a busy one of the same kind that
// is observed in slices, whose hits alone take more than the budget.
func TestTuneRare(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	for _, busy := range []uint64{130, 1300, 13_000, 1_300_000} {
		k := newKernelSide(t)
		k.trap.Store(int64(time.Microsecond))
		rare, often := k.plan(t, profile.Locks, k.Programs.ValueProbe), k.plan(t, profile.Locks, k.Programs.ValueProbe)
		k.enrol(t, rare, often)
		for second := range time.Duration(30) {
			k.pretendCost(t, 10, 10*time.Microsecond)
			for tenth := range time.Duration(10) {
				now := second*time.Second + (tenth+1)*time.Second/10
				k.pretend(t, rare, 2)
				if !often.silent() {
					k.pretend(t, often, busy/10)
				}
				if tenth < 9 {
					k.check(now, now-second*time.Second)
				} else {
					k.tune(now, time.Second)
				}
				k.turn(now)
				if rare.silent() || rare.every != 1 {
					t.Fatalf("next to %d hits a second: after %v one in %d hits of the rare probe is recorded, in "+
						"one slice of %d",
						busy, now, rare.every, rare.duty.Slices)
				}
			}
		}
		if sliced := often.cover.Reason() != nil; sliced != (busy > 1000) {
			t.Errorf("%d hits a second: observed in slices: %v", busy, sliced)
		}
		if why := rare.cover.Reason(); why != nil {
			t.Errorf("next to %d hits a second the rare probe was not observed all the time: %v", busy, why)
		}
	}
}

// The log says once a minute that the same events are observed for a part of the time, of whichever
// library.
func TestWarnPartly(t *testing.T) {
	var text bytes.Buffer
	e := &Probes{config: Config{Log: slog.New(slog.NewTextHandler(&text, nil))}}
	a, b := &attachedPlan{eventPlan: eventPlan{of: "waits for monitors"}, library: "/jdk/libjvm.so"},
		&attachedPlan{eventPlan: eventPlan{of: "waits for monitors"}}
	other := &attachedPlan{eventPlan: eventPlan{of: "allocations"}}
	for pid := range 5 {
		e.noteUser([]*attachedPlan{a}, &guest.Process{PID: 4711 + pid}, a.library)
	}
	e.plans = []*attachedPlan{a}
	e.forgetUser(a.users[0])
	for second := range time.Duration(61) {
		for _, p := range []*attachedPlan{a, b, other} {
			e.warnPartly(p, (100+second)*time.Second, errors.New("too hot"))
		}
	}
	lines := slices.Collect(strings.Lines(text.String()))
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), text.String())
	}
	for _, want := range []string{"(pid 4712), ", "1 more", "library=/jdk/libjvm.so", "too hot"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%s lacks %s", lines[0], want)
		}
	}
	if strings.Contains(lines[0], "4711") || strings.Contains(lines[0], "likewise") ||
		!strings.Contains(lines[2], "likewise_before=119") {
		t.Errorf("%s\n%s", lines[0], lines[2])
	}
}

// What costs too much in a tenth of a second is not waited for until the second is over.
func TestCheck(t *testing.T) {
	k := newKernelSide(t)
	k.trap.Store(int64(time.Microsecond))
	p, fixed := k.plan(t, profile.Values, k.Programs.ValueProbe), k.plan(t, profile.Values, k.Programs.ValueProbe)
	fixed.fixed = true
	k.enrol(t, p, fixed)
	// No CPU times are known: a second's budget is 2 ms. In addition to the trap, a record takes 10
	// us.
	k.pretendCost(t, 10, 10*time.Microsecond)
	k.pretend(t, fixed, 1_000_000)
	k.pretend(t, p, 100)
	if k.check(checkInterval, checkInterval); p.silent() || fixed.silent() || p.every != 1 {
		t.Errorf("half of a second's budget is spent: one in %d, silent: %v", p.every, p.silent())
	}
	k.pretend(t, p, 900)
	if k.check(2*checkInterval, 2*checkInterval); p.silent() || p.every < 10 || k.rateOf(t, p) != p.every {
		t.Errorf("more than a second's budget is spent on records: one in %d, silent: %v", p.every, p.silent())
	}
	k.pretend(t, p, 1200)
	if k.check(3*checkInterval, 3*checkInterval); !p.silent() || fixed.silent() {
		t.Errorf("the budget of a second is half spent on hits alone: silent: %v, what is fixed: %v", p.silent(),
			fixed.silent())
	}
	// 2,200 hits in 60 ms take 37 times as much as unrecorded hits may.
	if p.duty.Slices != 37 {
		t.Errorf("one slice of %d is observed", p.duty.Slices)
	}
}

// The governor looks often while something may be spent, and is woken when that begins.
func TestPause(t *testing.T) {
	k := newKernelSide(t)
	now := proc.Monotonic() + time.Hour
	expect := func(what string, want time.Duration) {
		t.Helper()
		if got, fresh := k.pause(now); got != want || fresh {
			t.Errorf("%s: a pause of %v (fresh: %v), want %v", what, got, fresh, want)
		}
	}
	woken := func(what string) {
		t.Helper()
		if over, ended := k.rest(t.Context(), nil, GovernEvery); over || ended { // otherwise it would never return
			t.Errorf("%s: over: %v, ended: %v", what, over, ended)
		}
		if pause, fresh := k.pause(proc.Monotonic()); pause != checkInterval || !fresh {
			t.Errorf("%s: a pause of %v (fresh: %v)", what, pause, fresh)
		}
	}
	expect("no plan", GovernEvery)
	p := k.plan(t, profile.Allocations, k.Programs.ValueProbe)
	k.Probes.adopt([]*attachedPlan{p})
	woken("a plan")
	expect("a plan", calmInterval)
	k.setIdle([]*attachedPlan{p}, true)
	expect("a plan that nobody uses", GovernEvery)
	k.setIdle([]*attachedPlan{p}, false)
	woken("a process")
	p.duty.Start(0, 10, longestCycle, k.draw)
	expect("slices", checkInterval)
	k.noteAttached()
	over := make(chan time.Time)
	close(over)
	for range 20 {
		if over, _ := k.rest(t.Context(), over, checkInterval); !over {
			t.Fatal("the shortest pause is not kept")
		}
	}
}

func TestAdopt(t *testing.T) {
	for _, c := range []struct{ before, every, want uint32 }{
		{1, 1, 1}, {1, 2, 2}, {10, 15, 10}, {10, 16, 16}, {10, 7, 10}, {10, 6, 6}, {97, 1, 1}, {97, 101, 97},
	} {
		p := &attachedPlan{every: c.before}
		if p.adopt(c.every); p.every != c.want {
			t.Errorf("%d, then %d: %d; want %d", c.before, c.every, p.every, c.want)
		}
	}
}

func TestRecordCost(t *testing.T) {
	e := &Probes{}
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

// A plan that cannot be attached again for a slice reports why, and is tried again in the next
// cycle.
func TestAttachAgainInVain(t *testing.T) {
	k := newKernelSide(t)
	p := k.plan(t, profile.Allocations, k.config.Objects.Tick) // Tick is not a program of a probe
	if err := p.find(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.register(k.register); err != nil {
		t.Fatal(err)
	}
	k.plans = []*attachedPlan{p}
	p.rate = 1e6
	p.duty.Start(100*time.Second, 5, longestCycle, k.draw)
	k.turn(99 * time.Second)
	if p.cover.Reason() != nil {
		t.Errorf("attached early: %v", p.cover.Reason())
	}
	k.turn(100 * time.Second)
	if p.cover.Reason() == nil || !p.silent() || !p.duty.Done {
		t.Errorf("%v, silent: %v", p.cover.Reason(), p.silent())
	}
	k.turn(105 * time.Second)
	if p.duty.Begin != 105*time.Second || p.duty.Done {
		t.Errorf("the next cycle begins at %v", p.duty.Begin)
	}
}

// A request for a window shorter than a cycle makes the next slice earlier.
func TestHurry(t *testing.T) {
	k := newKernelSide(t)
	p := k.plan(t, profile.Allocations, k.Programs.ValueProbe)
	k.enrol(t, p)
	k.draw = func(n int) int { return n - 1 }
	p.duty.Start(0, 10, longestCycle, k.draw)
	k.Expect(time.Second, time.Minute)
	if p.duty.Begin != 0 || p.duty.From != 4500*time.Millisecond {
		t.Errorf("for a minute: a slice at %v", p.duty.From)
	}
	k.Expect(time.Second, 4*time.Second)
	if p.duty.Cycle() != 2*time.Second || p.duty.From != 2800*time.Millisecond {
		t.Errorf("for 4 s: a slice at %v of a cycle of %v", p.duty.From, p.duty.Cycle())
	}
	if k.Expect(time.Second, time.Second); p.duty.Cycle() != time.Second {
		t.Errorf("for a second: a cycle of %v", p.duty.Cycle())
	}
}

// A kind takes what others do not need of their shares. It keeps twice what it needs itself, and
// gets its own share back when it needs it.
func TestLend(t *testing.T) {
	k := newKernelSide(t)
	k.Options.Kinds[profile.Allocations], k.Options.Kinds[profile.Locks], k.Options.Kinds[profile.Pauses] = true, true,
		true
	k.Options.Budget, k.cpus = 0.03, 2
	load := func(kind profile.EventKind, cpus float64) planLoad {
		return planLoad{plan: &attachedPlan{eventPlan: eventPlan{kind: kind}}, full: cpus}
	}
	for _, c := range []struct {
		loads                      planLoads
		allocations, locks, pauses float64
	}{
		{nil, 0.01, 0.01, 0.01},
		{planLoads{load(profile.Allocations, 0.01), load(profile.Locks, 0.01)}, 0.01, 0.01, 0.01}, // enough for all
		{planLoads{load(profile.Allocations, 0.5)}, 0.03, 0, 0},
		{planLoads{load(profile.Allocations, 0.25), load(profile.Allocations, 0.25), load(profile.Locks, 0.005)}, 0.025,
			0.005, 0},
		{planLoads{load(profile.Allocations, 0.5), load(profile.Locks, 0.5)}, 0.015, 0.015, 0},
		// Locks need nearly all of theirs.
		{planLoads{load(profile.Allocations, 0.5), load(profile.Locks, 0.019)}, 0.02, 0.01, 0},
	} {
		k.lend(c.loads)
		for kind, want := range map[profile.EventKind]float64{profile.Allocations: c.allocations,
			profile.Locks: c.locks, profile.Pauses: c.pauses} {
			if got := k.allowance(kind, 1, 1).Share; math.Abs(got-want) > 1e-9 {
				t.Errorf("%v: %v has %v, want %v", c.loads, kind, got, want)
			}
		}
	}
}

// Cycles grow with the age of a plan.
func TestUsualCycle(t *testing.T) {
	p := &attachedPlan{}
	p.cover.Begin(100*time.Second, nil)
	for age, want := range map[time.Duration]time.Duration{
		0: shortestCycle, 4 * time.Second: shortestCycle, 8 * time.Second: time.Second, time.Minute: longestCycle,
		time.Hour: longestCycle,
	} {
		if got := p.usualCycle(100*time.Second + age); got != want {
			t.Errorf("after %v: %v, want %v", age, got, want)
		}
	}
}

// TestCoverageOfUndone: a plan that was attached too late, and never adopted, has no coverage.
func TestCoverageOfUndone(t *testing.T) {
	var c Coverages
	for range 2 * maxGone {
		c.remove(&attachedPlan{cookies: []uint32{1}})
	}
	if wanted, observed := c.Times(proc.Monotonic()); len(c.gone) != 0 || len(wanted) != 0 || len(observed) != 0 {
		t.Errorf("%d are kept; wanted %v, observed %v", len(c.gone), wanted, observed)
	}
}
