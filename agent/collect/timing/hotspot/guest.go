package hotspot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const (
	windowsPerSecond = 20 // most windows a second: the pauses are random
	timedPerWindow   = 64
	admitTime        = 500 * time.Millisecond // time in which invocations of a window begin
	leastWait        = 50 * time.Millisecond  // least time for their ends
	firstWait        = time.Second
	waitTimes        = 8  // factor on the longest invocation that was timed
	surveyEvery      = 16 // windows
	pairsEvery       = 8  // windows, once there are some
	idlePause        = 200 * time.Millisecond
)

// A guest is one process on the way to its timings. It belongs to its goroutine, except for notes
// and versionNotes, which Engine.mu guards.
type guest struct {
	engine  *Engine
	process *process
	cost    cost // cost of timings of invocations
	rounds  cost // cost of timings of rounds
	notes   []string

	versionNotes []string // likewise

	bucket     budget.Bucket
	versions   map[uint32]*version
	turn       int
	looked     time.Duration // windows of loops that stood so far
	waited     time.Duration // windows of invocations: no more than the former, if there are loops
	windowCost time.Duration // average cost of recent windows
	last       string        // error that was logged
}

// A version is what is known of one compilation of the method.
type version struct {
	name    string
	callers callers
	windows int           // windows since the last survey
	longest time.Duration // invocation
	wait    time.Duration // time limit for the ends of invocations
	second  uint64        // address of its second instruction; 0 if that could not be found
	tight   []tight       // loops that a breakpoint next to them makes slower
	slower  bool          // so does one at the entry, and it is known to matter
	suspect bool          // places are next to such loops, which may matter or not

	loops []*loopCode
	plans int // how often loops were looked for: maxPlans once they are known
	turn  int // windows so far: loops take turns
}

// maxVersions bounds the versions that are remembered; when there are more all are forgotten.
const maxVersions = 256

func newGuest(e *Engine, p *process) *guest {
	return &guest{engine: e, process: p, versions: map[uint32]*version{}, windowCost: time.Millisecond}
}

// run times until ctx is done or the process has ended.
func (g *guest) run(ctx context.Context) error {
	for {
		wait, err := g.step(ctx)
		switch {
		case watch.Refused(err): // also of a process that is about to end
			wait = time.After(idlePause)
		case err != nil:
			return err
		}
		if err := g.engine.opt.Root.Check(g.process.Identity); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		}
	}
}

// step opens at most one window, and returns when to open the next one.
func (g *guest) step(ctx context.Context) (<-chan time.Time, error) {
	if err := g.search(); err != nil {
		return nil, err
	}
	if used, ok := proc.CPUTime(g.process.PID); ok {
		g.bucket.FillShare(g.engine.opt.Share, used, g.windowCost)
	}
	list, err := g.process.current()
	if err != nil {
		return nil, err
	}
	invoked := len(list)
	if g.engine.opt.Loops {
		list = append(list, g.loopsOnly()...)
	}
	if len(list) == 0 {
		if len(g.versions) == 0 {
			return time.After(idlePause), g.process.everywhere()
		}
		return time.After(idlePause), nil
	}
	most := g.windowCost
	if !g.bucket.Take(most) {
		return watch.Pause(windowsPerSecond), nil
	}
	at := rand.IntN(len(list))
	c := &list[at]
	g.turn++
	var place *loopPlace
	var loop *loopCode
	if g.engine.opt.Loops && (at >= invoked || g.looked <= g.waited || g.version(c).slower) {
		loop, place = g.nextLoop(c)
	}
	begun := time.Now()
	var r result
	switch {
	case loop != nil:
		r, err = g.loopWindow(ctx, c, loop, place)
		g.looked += time.Since(begun)
	case at < invoked && !g.version(c).slower:
		r, err = g.window(ctx, c)
		g.waited += time.Since(begun)
	}
	g.bucket.Settle(most, r.Cost)
	g.windowCost += (r.Cost - g.windowCost) / 8
	g.windowCost = max(g.windowCost, timedPerWindow/8*g.engine.timer.observer.HitTime())
	return watch.Pause(windowsPerSecond), err
}

// search looks for code of the method from time to time.
func (g *guest) search() error {
	searched, notes, failed, err := g.process.searchDue("timed")
	if !searched {
		return nil
	}
	g.engine.mu.Lock()
	g.notes = notes
	g.engine.mu.Unlock()
	if err != nil {
		return err
	}
	g.report(failed)
	return nil
}

// report logs an error, once.
func (g *guest) report(err error) {
	if err == nil || err.Error() == g.last {
		return
	}
	g.last = err.Error()
	g.engine.opt.Log.Debug("cannot time invocations", "pid", g.process.PID, "err", err)
}

// window opens the window of a version that is needed most.
func (g *guest) window(ctx context.Context, c *vmruntime.Compilation) (r result, err error) {
	v := g.version(c)
	threads := v.callers.someThreads(maxThreads)
	places := v.callers.commonest(c.VerifiedEntry, maxCallers)
	w := window{limit: timedPerWindow, admit: admitTime, wait: max(leastWait, v.wait), threads: threads}
	switch {
	case len(places) == 0 || len(threads) == 0 || v.windows >= surveyEvery:
		w = window{mode: bpf.TimeCallers, addresses: []uint64{c.VerifiedEntry}, limit: timedPerWindow, admit: admitTime}
		v.windows = 0
	case v.second != 0 && (!g.cost.ready() || g.turn%pairsEvery == 0 && !g.cost.enough()):
		w.mode, w.addresses, w.wait = bpf.TimePairs, []uint64{c.VerifiedEntry, v.second}, 0
	default:
		w.mode, w.addresses = bpf.TimeInvocations, append([]uint64{c.VerifiedEntry}, places...)
	}
	v.windows++
	if r, err = g.engine.timer.time(ctx, g.process.Identity, w); err == nil && !g.process.still(c) {
		err = watch.ErrChanged
	}
	g.take(c, v, &w, &r, err)
	if err != nil && (watch.Refused(err) || errors.Is(err, watch.ErrChanged)) {
		return r, nil
	}
	return r, err
}

// loopsOnly are compilations that are entered in a loop. Those in which no thread seems to run are
// among them seldom.
func (g *guest) loopsOnly() (list []vmruntime.Compilation) {
	for i := range g.process.osrCode {
		c := &g.process.osrCode[i]
		if v := g.versions[c.Version]; v == nil || !v.idle() || rand.IntN(idleEvery) == 0 {
			list = append(list, *c)
		}
	}
	return list
}

// nextLoop is the loop of a compilation whose turn it is, and where to watch it; nil if none can be
// timed. Those that are too short, or that no thread seems to run, have it seldom.
func (g *guest) nextLoop(c *vmruntime.Compilation) (*loopCode, *loopPlace) {
	v := g.version(c)
	if v.plans < maxPlans {
		v.plans++
		var err error
		if v.loops, err = g.planLoops(c); err == nil {
			v.plans = maxPlans
		}
		g.report(err) // the VM changes its code while it is read: the next time may succeed
		g.noteVersions()
	}
	v.turn++
	var list []*loopCode
	for _, l := range v.loops {
		if len(l.places) > 0 && (!l.best().short && !l.idle() || v.turn%shortEvery == 0) {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	l := list[rand.IntN(len(list))]
	return l, l.best()
}

// loopWindow opens a window of a loop of a compilation.
func (g *guest) loopWindow(
	ctx context.Context, c *vmruntime.Compilation, l *loopCode, place *loopPlace,
) (r result, err error) {
	w := place.window(!g.rounds.ready() || g.turn%pairsEvery == 0 && !g.rounds.enough())
	if r, err = g.engine.timer.time(ctx, g.process.Identity, w); err == nil && !g.process.exists(c) {
		err = watch.ErrChanged
		delete(g.versions, c.Version)
	}
	g.takeLoop(c, l, place, &w, &r, err)
	if err != nil && (watch.Refused(err) || errors.Is(err, watch.ErrChanged)) {
		return r, nil
	}
	return r, err
}

// idle reports whether no thread was seen in any loop, or none can be timed.
func (v *version) idle() bool {
	return v.plans == maxPlans && !slices.ContainsFunc(v.loops,
		func(l *loopCode) bool { return len(l.places) > 0 && !l.idle() })
}

// takeLoop takes over what a window of a loop observed.
func (g *guest) takeLoop(c *vmruntime.Compilation, l *loopCode, place *loopPlace, w *window, r *result, err error) {
	switch {
	case err != nil && w.mode == bpf.TimeRounds:
		cause := lostFailed
		if errors.Is(err, watch.ErrChanged) {
			cause = lostReplaced
		}
		g.engine.deliver(nil, map[string]int{cause: r.Started}, r.Cost)
		return
	case err != nil:
		g.engine.deliver(nil, nil, r.Cost)
		return
	case w.mode == bpf.TimeCallers:
		place.callers.learn(r.Timed)
		if place.silent++; len(r.Timed) > 0 {
			place.silent = 0
		}
		g.engine.deliver(nil, nil, r.Cost)
		return
	case w.mode == bpf.TimePairs:
		if len(r.Timed) == 0 && r.Started > 0 {
			place.next = 0 // the instruction jumps
		}
		g.rounds.add(r.Timed)
		g.engine.deliver(nil, nil, r.Cost)
		return
	}
	list, runs := place.take(r)
	lost := map[string]int{
		lostRounds: len(r.Timed) - len(list) + r.Lost[bpf.LostLeft], lostDeep: r.Lost[bpf.LostDeep],
		lostThread: r.Lost[bpf.LostNoSlot], lostOpen: r.Open,
	}
	trap, _ := g.rounds.get()
	if trap == 0 {
		trap, _ = g.cost.get() // no pairs can be had at this place
	}
	trap += g.engine.timer.round
	of := timing.Region{Method: g.process.method.String(), Loop: l.number}
	timings := loopTimings(of, g.process.version(c), list, runs, trap)
	if len(timings) > 0 {
		var sum time.Duration
		for i := range timings {
			sum += timings[i].Duration
		}
		place.short = sum/time.Duration(len(timings)) < trap/2
	}
	g.engine.deliver(timings, lost, r.Cost)
	g.noteVersions()
}

// noteVersions updates what users are shown of versions and their loops.
func (g *guest) noteVersions() {
	var notes []string
	for _, id := range slices.Sorted(maps.Keys(g.versions)) {
		v := g.versions[id]
		if v.slower {
			notes = append(notes, fmt.Sprintf("process %d: invocations of %s are not timed: %s", g.process.PID, v.name,
				g.engine.timer.slowed()))
		}
		for _, l := range v.loops {
			if text := l.describe(); text != "" {
				notes = append(notes, fmt.Sprintf("process %d: loop %d in %s: %s", g.process.PID, l.number, v.name,
					text))
			}
		}
	}
	if text := g.noteSlowed(); text != "" {
		notes = append(notes, text)
	}
	g.engine.mu.Lock()
	g.versionNotes = notes
	g.engine.mu.Unlock()
}

// version is what is remembered of a compilation.
func (g *guest) version(c *vmruntime.Compilation) *version {
	v := g.versions[c.Version]
	if v != nil {
		return v
	}
	if len(g.versions) >= maxVersions {
		clear(g.versions)
	}
	v = &version{name: versionName(c), wait: firstWait}
	code := make([]byte, longestInstruction)
	err := g.process.memory.Read(c.VerifiedEntry, code)
	if err == nil {
		v.second, err = secondInstruction(c.VerifiedEntry, code)
	}
	g.report(err)
	v.tight = g.tightIn(c)
	if besideAny(v.tight, []uint64{c.VerifiedEntry}, nil) {
		v.slower = c.Tier == vmruntime.TierC1
		v.suspect = !v.slower
	}
	g.versions[c.Version] = v
	g.noteVersions()
	return v
}

// take takes over what a window observed.
func (g *guest) take(c *vmruntime.Compilation, v *version, w *window, r *result, err error) {
	if w.mode != bpf.TimeInvocations {
		if err == nil && w.mode == bpf.TimeCallers {
			v.callers.learn(r.Timed)
		} else if err == nil {
			g.cost.add(r.Timed)
		}
		g.engine.deliver(nil, nil, r.Cost)
		return
	}
	lost := map[string]int{
		lostElsewhere: r.Lost[bpf.LostUnwatched], lostUnwound: r.Lost[bpf.LostUnwound], lostDeep: r.Lost[bpf.LostDeep],
		lostThread: r.Lost[bpf.LostNoSlot], lostOpen: r.Open,
	}
	switch {
	case errors.Is(err, watch.ErrChanged):
		g.engine.deliver(nil, map[string]int{lostReplaced: r.Started}, r.Cost)
		return
	case err != nil:
		g.engine.deliver(nil, map[string]int{lostFailed: r.Started}, r.Cost)
		return
	}
	trap, _ := g.cost.get()
	trap += g.engine.timer.excess
	of := timing.Region{Method: g.process.method.String()}
	list := make([]timing.Timing, len(r.Timed))
	for i := range r.Timed {
		t := &r.Timed[i]
		d := duration(t, trap)
		list[i] = timing.Timing{Region: of, Version: g.process.version(c), Thread: int(t.Tid), Duration: d, Part: d,
			Runs: 1}
		v.longest = max(v.longest, time.Duration(t.Ns))
	}
	v.learn(r)
	g.engine.deliver(list, lost, r.Cost)
}

// learn learns from a window how long to wait for the ends of invocations. One that is cut off
// would be missing among the long ones, and timings of a slow version would look too short.
func (v *version) learn(r *result) {
	switch {
	case r.Open > 0:
		v.wait = min(max(2*v.wait, leastWait), longestWait)
	case len(r.Timed) > 0:
		v.wait = min(max(waitTimes*v.longest, leastWait), longestWait)
	}
	if r.Started == 0 || r.Lost[bpf.LostUnwatched] > r.Started/2 {
		v.windows = surveyEvery // others call, or other threads
	}
}
