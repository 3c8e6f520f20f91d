package probes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// tolerated is the cost of a slice, in multiples of the planned cost, from which a draw decides
// whether it continues.
const tolerated = 4

// Bounds of the length of cycles, where it can be chosen.
const (
	shortestCycle = 500 * time.Millisecond // for a young plan: so that a short recording has some slices, too
	longestCycle  = 5 * time.Second        // so that each window of serve has at least two
)

// usualCycle returns the length of a cycle that begins now: an eighth of the age of the plan,
// within bounds. So a recording has at least eight cycles unless slices are rare, and a
// long-running agent seldom attaches and detaches.
func (p *attachedPlan) usualCycle(now time.Duration) time.Duration {
	return min(max((now-p.cover.BornAt())/8, shortestCycle), longestCycle)
}

// slice starts to observe a plan in slices of time, because it is too expensive; mu is held.
func (e *Probes) slice(p *attachedPlan, now time.Duration, l planLoad, part float64, why error) {
	p.rate, p.slicedAt = l.rate, now
	n := e.allowance(p.kind, part, 1).SlicesFor(e.loadOf(l), budget.MaxSlices)
	p.duty.Start(now, n, p.usualCycle(now), e.draw)
	p.cover.SetPartly(why)
	e.thin(p, l, part)
	e.vanish(p, now)
	e.warnPartly(p, now, why)
}

// warnEvery is how often the log says that the same events are observed for a part of the time: a
// plan may change between that and all of the time every few seconds, and each library has plans of
// its own.
const warnEvery = time.Minute

// A warning is when the log last said something, and how often it would have been said again since.
type warning struct {
	at    time.Duration
	again int
}

// warnPartly logs that a plan is observed in slices from now on, unless it did so for such a plan
// in the last minute; mu is held.
func (e *Probes) warnPartly(p *attachedPlan, now time.Duration, why error) {
	w := e.warned[p.of]
	if w != nil && now-w.at < warnEvery {
		w.again++
		return
	}
	attrs := []any{"events", p.of, "processes", p.userNames(), "library", p.library, "slices", p.duty.Slices, "of",
		p.duty.Length, "why", why}
	if w != nil && w.again > 0 {
		attrs = append(attrs, "likewise_before", w.again)
	}
	e.config.Log.Info("events are recorded part of the time to stay within --budget", attrs...)
	if e.warned == nil {
		e.warned = map[string]*warning{}
	}
	e.warned[p.of] = &warning{at: now}
}

// Bounds of the processes that a message names, and of their names in bytes.
const (
	maxNamed     = 3
	maxNameBytes = 100
)

// userNames names the processes that use the plan's library: "java (pid 4711, shop.service), 2
// more".
func (p *attachedPlan) userNames() string {
	var names []string
	for i, user := range p.users {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(p.users)-i))
			break
		}
		d := user.Describe()
		name := fmt.Sprintf("%s (pid %d", symbol.Printable(d.Comm, maxNameBytes), user.PID)
		if d.Service != "" {
			name += ", " + symbol.Printable(d.Service, maxNameBytes)
		}
		names = append(names, name+")")
	}
	return strings.Join(names, ", ")
}

// thin sets N for a slice, in which one hit in N is recorded; mu is held.
func (e *Probes) thin(p *attachedPlan, l planLoad, part float64) {
	every, err := e.allowance(p.kind, part, p.duty.Slices).Every(e.loadOf(l))
	if err != nil {
		every = int(p.every) // the number of slices is at its maximum: their cost is accepted
	}
	p.every = uint32(max(every, 1))
}

// turn begins and ends the slices of plans that are not observed all the time.
func (e *Probes) turn(now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = now
	before, ended := proc.Monotonic(), false
	for _, p := range e.plans {
		if d := &p.duty; !d.Always() && d.On {
			e.watchSlice(p, now)
			ended = ended || !d.On
		}
	}
	if ended { // this takes a while
		now += proc.Monotonic() - before
	}
	for _, p := range e.plans {
		switch d := &p.duty; {
		case d.Always() || d.On:
		case d.Over(now):
			e.nextCycle(p, now)
			if p.duty.Always() {
				return
			}
		case !d.Done && now >= d.From:
			e.beginSlice(p, now)
			return // attaching took a while, too: other beginnings get their own time, at the next tick
		}
	}
}

func (e *Probes) beginSlice(p *attachedPlan, now time.Duration) {
	hits, err := e.hitsOf(p)
	if err == nil {
		p.hits = hits
		loads, l := e.loadNow(p)
		allowed := e.allowance(p.kind, e.part(loads, l), p.duty.Slices).HitsAllowed(e.loadOf(l), p.duty.Length)
		p.duty.Open(now, tolerated*allowed)
		err = e.appear(p, now)
	}
	if err != nil {
		p.duty.On, p.duty.Done = false, true // nothing of this cycle is observed
		p.cover.SetPartly(err)
		e.config.Log.Warn("cannot attach probes again", "events", p.of, "err", err)
	}
}

// watchSlice ends a slice that is over. If a slice costs far more than planned, a draw decides
// whether it ends.
func (e *Probes) watchSlice(p *attachedPlan, now time.Duration) {
	hits, err := e.hitsOf(p)
	if err != nil {
		return
	}
	d, seen := &p.duty, float64(hits-p.hits)
	if now < d.To {
		before := d.Weight
		if d.GoesOn(seen, e.draw) {
			if d.Weight != before {
				p.cover.Reweigh(now, d.Weight)
			}
			return
		}
	}
	d.Done = true
	e.noteSlice(p, hits-p.hits, now-d.From)
	// After a burst, a plan returns in steps to being observed all the time.
	p.rate, p.hits = max(seen/max(now-d.From, checkInterval).Seconds(), p.rate/2), hits
	e.vanish(p, now)
}

// noteSlice records what a slice cost the processes, with that many hits in that time; mu is held.
func (e *Probes) noteSlice(p *attachedPlan, hits uint64, length time.Duration) {
	count := e.countTime(p)
	each := float64(count) + float64(e.recordTime(p))/float64(max(p.every, 1))
	p.cover.Spend(time.Duration(float64(hits)*each), time.Duration(max(e.cpusOf(p), 1e-3)*float64(length)))
}

// nextCycle begins another cycle of slices, or returns to observing the plan all the time if its
// cost is clearly below its limit.
func (e *Probes) nextCycle(p *attachedPlan, now time.Duration) {
	loads, l := e.loadNow(p)
	part := e.part(loads, l)
	n := e.allowance(p.kind, part, 1).SlicesFor(e.loadOf(l), budget.MaxSlices)
	if more := l.times(Steady); e.allowance(p.kind, e.part(loads, more), 1).SlicesFor(e.loadOf(more),
		budget.MaxSlices) > 1 {
		p.duty.Start(now, n, p.usualCycle(now), e.draw)
		e.thin(p, l, part)
		return
	}
	p.duty, p.every = budget.Duty{}, 1
	if every, err := e.affordable(l, part); err == nil {
		p.every = uint32(every)
	}
	if err := e.appear(p, now); err != nil {
		e.config.Log.Warn("cannot attach probes again", "events", p.of, "err", err)
		p.duty.Start(now, 2, p.usualCycle(now), e.draw)
		p.cover.SetPartly(err)
		return
	}
	e.lastAttached.Store(int64(now))
}

// loadNow returns what all plans cost now, and what a plan costs that is observed in slices.
func (e *Probes) loadNow(p *attachedPlan) (planLoads, planLoad) {
	loads := e.loads(GovernEvery)
	for _, l := range loads {
		if l.plan == p {
			return loads, l
		}
	}
	return loads, planLoad{plan: p, rate: p.rate, count: e.countTime(p)}
}

// Expect restarts cycles that are so long that a window of that length may contain none of their
// slices, with shorter ones.
func (e *Probes) Expect(now, window time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.plans {
		d := &p.duty
		within := max(window/2, budget.LongestSlice)
		if d.Always() || d.On || d.Cycle() <= within || time.Duration(d.Slices)*budget.ShortestSlice >= d.Cycle() {
			continue
		}
		d.Start(now, d.Slices, within, e.draw)
	}
}

// Coverages are the coverages of all plans. Reading them does not wait for the governor. Any
// goroutine may call the methods.
type Coverages struct {
	of   [bpf.MaxProbes]atomic.Pointer[fold.Coverage] // by cookie
	mu   sync.Mutex
	list []*fold.Coverage
	// gone are the coverages in list of removed plans: the last maxGone, as open windows may have
	// parts of them.
	gone             []*fold.Coverage
	wanted, observed map[string]time.Duration // times of earlier ones, by kind
}

// maxGone bounds the kept coverages of removed plans, some 5 KB each: those of a hundred libraries.
const maxGone = 1024

// add adds the coverage of a plan, once.
func (c *Coverages) add(p *attachedPlan) {
	if len(p.cookies) == 0 || c.of[p.cookies[0]].Load() == &p.cover {
		return
	}
	p.cover.Kind, p.cover.What, p.cover.Everybody = p.kind, p.of, p.perf
	for _, cookie := range p.cookies {
		c.of[cookie].Store(&p.cover)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, &p.cover)
}

// remove drops the coverage of a plan, unless an open window may need it.
func (c *Coverages) remove(p *attachedPlan) {
	for _, cookie := range p.cookies {
		c.of[cookie].CompareAndSwap(&p.cover, nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.list, &p.cover) {
		return // the plan was never adopted
	}
	if c.gone = append(c.gone, &p.cover); len(c.gone) <= maxGone {
		return
	}
	old := c.gone[0]
	c.gone = slices.Delete(c.gone, 0, 1)
	c.list = slices.DeleteFunc(c.list, func(cover *fold.Coverage) bool { return cover == old })
	if c.wanted == nil {
		c.wanted, c.observed = map[string]time.Duration{}, map[string]time.Duration{}
	}
	sums := old.Sums(math.MaxInt64)
	c.wanted[old.Kind.String()] += sums.Total
	c.observed[old.Kind.String()] += sums.Observed
}

// Sums returns the present sums of all coverages.
func (c *Coverages) Sums(now time.Duration) map[*fold.Coverage]fold.CoverageSums {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[*fold.Coverage]fold.CoverageSums, len(c.list))
	for _, cover := range c.list {
		all[cover] = cover.Sums(now)
	}
	return all
}

// Times returns for how long events were to be observed, and for how long they were, by kind.
func (c *Coverages) Times(now time.Duration) (wanted, observed map[string]time.Duration) {
	wanted, observed = map[string]time.Duration{}, map[string]time.Duration{}
	c.mu.Lock()
	maps.Copy(wanted, c.wanted)
	maps.Copy(observed, c.observed)
	c.mu.Unlock()
	for cover, sums := range c.Sums(now) {
		wanted[cover.Kind.String()] += sums.Total
		observed[cover.Kind.String()] += sums.Observed
	}
	return wanted, observed
}

// Part returns the weight of an observation; ok is false if it was made while its plan was not
// observed.
func (c *Coverages) Part(o *bpf.Observation) (part fold.ObservedPart, ok bool) {
	if o.Seen.Probe >= bpf.MaxProbes {
		return part, true
	}
	part.Cover = c.of[o.Seen.Probe].Load()
	if part.Cover == nil {
		return part, true
	}
	part.Piece, ok = part.Cover.At(time.Duration(o.Time))
	return part, ok
}
