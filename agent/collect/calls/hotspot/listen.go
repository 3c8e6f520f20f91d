package hotspot

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An observedWindow is what one window observed.
type observedWindow struct {
	at      time.Duration // CLOCK_MONOTONIC
	entries []bpf.Frame   // code versions with breakpoints
	hits    map[observedHit]int
	length  time.Duration // planned length
	ran     time.Duration
	capped  bool
	partial bool // threads were left out: their debug registers were in use, or there were too many
}

// An observedHit is a callee and its call site.
type observedHit struct {
	callee bpf.Frame
	caller guest.RawFrame
}

// fillBucket adds the windows' share of the CPU time that processes used.
func (e *Engine) fillBucket(busy []fold.Busy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	share := e.share()
	now := proc.Monotonic()
	passed := min(now-e.planned, 2*planInterval)
	e.planned = now
	var earned time.Duration
	for _, b := range busy {
		// Recent CPU time a second.
		cpus := b.Top.All * e.Period.Seconds() / max(b.Top.Span.Seconds(), 1e-3)
		own := e.guestOf(b.Process)
		own.income = cpus * share
		earned += time.Duration(own.income * float64(passed))
	}
	e.bucket.Fill(earned, listenHits*e.hitTime())
}

// take takes the maximum cost of a window from the bucket; it returns false if too little is left.
func (e *Engine) take(most time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bucket.Take(most)
}

// settle replaces the amount taken by the actual cost of the window.
func (e *Engine) settle(most, cost time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bucket.Settle(most, cost)
}

// A wish is a window that would improve the estimate, in addresses.
type wish struct {
	entries  []listener.Entry
	frames   []bpf.Frame
	duration time.Duration
	hits     int
}

// A plan is the list of windows for one process, the best first.
type plan struct {
	process *fold.Process
	guest   listener.Guest
	wishes  []wish
	turn    int // index of the next wish
}

// next returns the window to open now; after the last one comes the first again.
func (p *plan) next() wish {
	w := p.wishes[p.turn%len(p.wishes)]
	p.turn++
	return w
}

// planDeadline is how long a plan may take. planShare bounds the part of a worker's time for plans
// of one process, and firstShare that in the time after it was first met, when plans learn most.
const (
	planDeadline = 3 * time.Second
	planShare    = 0.03
	firstShare   = 0.25
	firstTime    = 10 * time.Second
)

// replan makes a plan for a process if it is time for one; otherwise the last plan's windows
// continue.
func (e *Engine) replan(ctx context.Context, b fold.Busy, own *jvm) {
	now := proc.Monotonic()
	if now < own.planAgain {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, planDeadline)
	defer cancel()
	made := make(chan plan, 1)
	err := e.Resolver.WithVM(ctx, b.Process.Process, func(g *guest.VM) error {
		wishes, err := e.plan(g, b)
		if err == nil {
			made <- plan{process: b.Process, guest: listener.Guest{Identity: b.Identity(), Memory: g.Memory},
				wishes: wishes}
		}
		return err
	})
	took := proc.Monotonic() - now
	share := planShare
	if now-own.since < firstTime {
		share = firstShare
	}
	own.planAgain = now + max(planInterval, time.Duration(float64(took)/share))
	if err != nil {
		e.Log.Debug("cannot plan what to listen to", "pid", b.PID, "err", err)
		own.plan = plan{}
		return
	}
	own.plan = <-made
	e.Log.Debug("planned what to listen to", "pid", b.PID, "windows", len(own.plan.wishes), "took", took)
}

// guestOf returns the state of a process; mu is held.
func (e *Engine) guestOf(p *fold.Process) *jvm {
	own := e.guests[p]
	if own == nil {
		own = &jvm{since: proc.Monotonic(), keep: keepEstimate, windowCost: listenHits * e.hitTime()}
		e.guests[p] = own
	}
	return own
}

// listen opens the windows of a process's plan until ctx ends, at random moments, as many as its
// budget allows.
func (e *Engine) listen(ctx context.Context, own *jvm) {
	if len(own.plan.wishes) == 0 || own.income <= 0 {
		return
	}
	w := own.plan.next()
	for {
		pause := max(own.windowCost.Seconds()/own.income, 1./listenWindows)
		now := proc.Monotonic()
		own.due = max(own.due, now-planInterval) + time.Duration(rand.ExpFloat64()*pause*float64(time.Second))
		select {
		case <-ctx.Done():
			return
		case <-time.After(own.due - now):
		}
		if e.window(ctx, own, w) {
			w = own.plan.next()
		}
	}
}

// plan chooses the next windows.
func (e *Engine) plan(g *guest.VM, b fold.Busy) ([]wish, error) {
	vm, err := guest.As[vmruntime.CallCounter](g)
	if err != nil {
		return nil, err
	}
	observed := e.observedSince(b.Process, proc.Monotonic()-recentWindows)
	e.mu.Lock()
	own := e.guestOf(b.Process)
	income := own.income
	e.mu.Unlock()
	hit := e.hitTime()
	in := newInput(g, vm, e.Resolver.ClassEpoch(g), b.Top, observed, b.Top.Span, e.Period, hit)
	if err := in.readProfiles(&own.last, proc.Monotonic()); err != nil {
		return nil, err
	}
	e.mark(b.Process, &own.last)
	e.keep(g, b.Process, own)
	r := estimate.Estimate(&in.Input, estimate.Options{})
	e.mu.Lock()
	own.credibility = r.Credibility
	e.mu.Unlock()
	var wishes []wish
	if e.listener == nil {
		return nil, nil
	}
	for _, q := range estimate.Plan(&in.Input, r, estimate.Budget{
		Windows: listenWindows, Hits: income * planAhead.Seconds() / hit.Seconds(), Codes: listener.MaxEntries,
		MaxHits: listenHits, MaxDuration: listenLongest.Seconds(),
	}) {
		w := wish{duration: time.Duration(q.Duration * float64(time.Second)), hits: q.MaxHits}
		for _, c := range q.Codes {
			if entry := in.entries[c]; entry.Address != 0 {
				w.entries = append(w.entries, entry)
				w.frames = append(w.frames, frameAt(g, entry))
			}
		}
		if len(w.entries) == len(q.Codes) && w.duration > 0 {
			wishes = append(wishes, w)
		}
	}
	return wishes, nil
}

// frameAt returns the frame of a thread at an entry.
func frameAt(g *guest.VM, e listener.Entry) bpf.Frame {
	return bpf.Frame(uint64(bpf.FrameJIT)<<60 | uint64(e.Version)<<32 | uint64(uint32(e.Address-g.CodeLow())))
}

// window opens one window, if the budget has room for it.
func (e *Engine) window(ctx context.Context, own *jvm, w wish) (enough bool) {
	p := own.plan.process
	most := time.Duration(w.hits) * e.hitTime()
	if !e.take(most) {
		return false
	}
	r, err := e.listener.Listen(ctx, own.plan.guest, w.entries, listener.Window{Duration: w.duration, MaxHits: w.hits})
	e.settle(most, r.Cost)
	own.windowCost += (r.Cost - own.windowCost) / 8
	if failed := e.watches.Add(ctx, &r, err); failed {
		e.Log.Warn("cannot observe calls", "pid", p.PID, "err", err)
		return true
	} else if err != nil {
		e.Log.Debug("a window was void", "pid", p.PID, "err", err)
		return true
	}
	// A full window counts up to its last hit: later hits are not in it.
	ran := max(r.Ran-time.Duration(r.Late)*e.hitTime(), 0)
	observed := observedWindow{at: proc.Monotonic(), entries: w.frames, hits: map[observedHit]int{}, length: w.duration,
		ran: ran, capped: r.Capped, partial: r.Busy+r.Left > 0}
	epoch := e.Resolver.ClassEpochOf(p.Process)
	for _, h := range r.Hits {
		observed.hits[observedHit{h.Callee, fold.CallSite(h.Caller, epoch)}]++
	}
	e.learn(p, r.Hits, epoch)
	e.mu.Lock()
	defer e.mu.Unlock()
	own.windows = append(own.windows, observed)
	if n := len(own.windows); n > keptWindows {
		own.windows = slices.Clone(own.windows[n-keptWindows/2:])
	}
	return true
}

// learn passes the calls that a watch observed in code of p's VM to the joiner, which learns
// contexts from them.
func (e *Engine) learn(p *fold.Process, hits []listener.Hit, classEpoch uint32) {
	e.Owner.Do(func(s *fold.State) {
		if s.Table[p.PID] != p {
			return // it has ended, and another VM may have its slot
		}
		for _, h := range hits {
			callee := guest.RawFrame{Frame: h.Callee, Kind: guest.RawExact}
			s.Joiner().LearnCall(p, callee, fold.CallSite(h.Caller, classEpoch), h.CalleeDepth, h.CallerDepth)
		}
	})
}

// observedSince returns the observations of p in windows that ended after the given time.
func (e *Engine) observedSince(p *fold.Process, since time.Duration) []observedWindow {
	e.mu.Lock()
	defer e.mu.Unlock()
	own := e.guests[p]
	if own == nil {
		return nil
	}
	for i := range own.windows {
		if own.windows[i].at >= since {
			return own.windows[i:len(own.windows):len(own.windows)]
		}
	}
	return nil
}
