package events

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Surveys say what virtual threads wait for while probes are attached in slices of time. A wait seldom fits into a slice, so its length is not
// seen. But a draw of the threads at a random moment shows which part of them waits, and where: the time of waits is that part of the time of
// all threads. Nothing is attached for a survey, and its cost depends neither on how many threads there are nor on how often they wait. How often
// they begin to wait is counted in the slices.

// surveys are the processes whose virtual threads are surveyed. Only functions that have the State use it.
type surveys map[*target.Process]*survey

// A survey is what of the waits of a process's virtual threads is taken from surveys.
type survey struct {
	until [virtualKinds]time.Duration // CLOCK_MONOTONIC: up to when lengths are known of waits of each kind; 0 if they do not come from surveys
	last  []waitingVirtual            // what the last survey found
	why   string                      // why there can be none; ""
}

// Kinds of waits of virtual threads.
const (
	virtualParks  = iota
	virtualBlocks // for a monitor
	virtualKinds
)

// waitNames is what a wait of each kind is called: profile.EventLabels.What.
var waitNames = [virtualKinds]string{virtualParks: "park", virtualBlocks: "block"}

func virtualKind(monitor bool) int {
	if monitor {
		return virtualBlocks
	}
	return virtualParks
}

// of reports whether the lengths of waits of that kind are taken from surveys.
func (s *survey) of(kind int) bool { return s != nil && s.why == "" && s.until[kind] != 0 }

// failed reports whether there can be none.
func (s *survey) failed() bool { return s != nil && s.why != "" }

// any reports whether lengths of waits are.
func (s *survey) any() bool { return s.of(virtualParks) || s.of(virtualBlocks) }

// Bounds of surveys.
const (
	mostSurveyed   = 128 // threads of a process
	mostSeeded     = 512 // the same of its first one
	shortestPeriod = 250 * time.Millisecond
	longestPeriod  = 2 * time.Second // unless surveys take surveyShare of it
	surveyShare    = 0.05            // of a CPU
	surveyStacks   = time.Second     // for the stacks of one survey
)

// virtualName is the name of virtual threads in rows: there may be any number of them, and most have none.
const virtualName = "virtual thread"

// surveyVirtual surveys virtual threads until ctx ends, in each period at a moment that is drawn. Periods are so long that surveys stay within the
// budget of locks.
func (e *Source) surveyVirtual(ctx context.Context) {
	seeded := map[*target.Process]bool{}
	begin, period := time.Now(), shortestPeriod
	for {
		before := time.Now()
		e.seedVirtual(ctx, seeded)
		cost := time.Since(before)
		end := begin.Add(period)
		if !sleepUntil(ctx, begin.Add(rand.N(period))) {
			return
		}
		before = time.Now()
		for _, p := range e.toSurvey() {
			if err := e.surveyOne(ctx, p); err != nil && ctx.Err() == nil {
				e.services.Log.Debug("cannot survey virtual threads", "pid", p.PID, "err", err)
				e.noSurvey(p, err)
			}
		}
		cost += time.Since(before)
		if !sleepUntil(ctx, end) {
			return
		}
		begin, period = end, e.surveyPeriod(cost)
	}
}

func sleepUntil(ctx context.Context, then time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(then)):
		return true
	}
}

// surveyPeriod returns the length of a period in which surveys take that long.
func (e *Source) surveyPeriod(cost time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	cpus := e.allowance(profile.Locks, 1, 1).CPUs(max(e.cpus, 1e-9))
	most := max(longestPeriod, time.Duration(float64(cost)/surveyShare))
	return min(max(time.Duration(float64(cost)/max(cpus, 1e-9)), shortestPeriod), most)
}

// A virtualPlan is a plan of waits of virtual threads in one process.
type virtualPlan struct {
	process *target.Process
	kind    int
	plan    *attachedPlan
	sliced  time.Duration // CLOCK_MONOTONIC: since when it is not observed all the time; 0 if it is
	cookie  uint32
	turn    uint32
}

// virtualPlans returns the plans of waits of virtual threads in processes that have had any.
func (e *Probes) virtualPlans() (list []virtualPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, plan := range e.plans {
		parks, monitors := plan.of == virtualWaits, plan.waits == e.Programs.Entering
		if plan.kind != profile.Locks || plan.idle || !parks && !monitors || len(plan.cookies) == 0 {
			continue
		}
		for _, p := range plan.users {
			if e.ranVirtual(p) && p.Attachment.Load() != 0 {
				of := virtualPlan{process: p, kind: virtualKind(monitors), plan: plan, cookie: plan.cookies[0], turn: plan.turn}
				if !plan.duty.Always() {
					of.sliced = plan.slicedAt
				}
				list = append(list, of)
			}
		}
	}
	return list
}

// toSurvey returns the processes that are to be surveyed now: those of whose virtual threads waits are observed in slices of time. One that was
// surveyed once goes on to be.
func (e *Source) toSurvey() (found []*target.Process) {
	plans := e.virtualPlans()
	e.services.Owner.Do(func(st *fold.State) {
		for p := range e.surveys {
			if p.Exited.Load() {
				delete(e.surveys, p)
			}
		}
		for _, of := range plans {
			s := e.surveys[of.process]
			if of.sliced != 0 && !s.of(of.kind) && !s.failed() {
				if s == nil {
					s = &survey{}
					e.surveys[of.process] = s
				}
				s.until[of.kind] = of.sliced
				of.plan.cover.Surveyed.Store(of.kind == virtualParks) // other threads wait for monitors, too
				e.virtuals.settle(st, of.process, of.kind, of.sliced)
			}
		}
		for p, s := range e.surveys {
			if s.any() {
				found = append(found, p)
			}
		}
	})
	return found
}

// noSurvey notes that a process cannot be surveyed.
func (e *Source) noSurvey(p *target.Process, why error) {
	for _, of := range e.virtualPlans() {
		if of.process == p {
			of.plan.cover.Surveyed.Store(false)
		}
	}
	e.services.Owner.Do(func(*fold.State) { e.surveys[p] = &survey{why: why.Error()} })
}

// surveyOne surveys one process.
func (e *Source) surveyOne(ctx context.Context, p *target.Process) error {
	waiting, err := e.virtualWaiting(ctx, p, mostSurveyed)
	if err != nil {
		return err
	}
	now := proc.Monotonic()
	e.services.Owner.Do(func(st *fold.State) {
		s, of := e.surveys[p], st.Table[p.PID]
		if s == nil || of == nil || of.Process != p {
			return
		}
		s.last = waiting
		s.each(p, now, func(epoch uint32, event *fold.Event) { st.AddEvent(of, uint32(p.PID), epoch, event) })
		for kind := range s.until {
			if s.of(kind) {
				s.until[kind] = now
			}
		}
	})
	return nil
}

// each calls do for events of the waits that the last survey found, which stand for the time from until to then.
func (s *survey) each(p *target.Process, then time.Duration, do func(epoch uint32, event *fold.Event)) {
	for i := range s.last {
		v := &s.last[i]
		from := s.until[v.kind()]
		if !s.of(v.kind()) || from >= then {
			continue
		}
		event, epoch := v.event(p)
		event.Every = fold.Moment
		event.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{2: v.weight * float64(then-from)}}
		event.Sums.Known = event.Sums.Values // whatever part of the records of probes was lost
		event.Lock = &fold.LockWait{Since: from, Until: then, Counted: true, Waiting: true}
		do(epoch, &event)
	}
}

// processes are those of which lengths are taken from surveys.
func (v surveys) processes() map[*target.Process]bool {
	found := map[*target.Process]bool{}
	for p, s := range v {
		found[p] = s.any()
	}
	return found
}

// finish adds to a window that ends then the time since the last surveys.
func (v surveys) finish(s *fold.State, window *fold.Window, end time.Duration) {
	for p, survey := range v {
		of := s.Table[p.PID]
		if of == nil || of.Process != p {
			continue
		}
		survey.each(p, end, func(epoch uint32, event *fold.Event) { window.AddLockWait(s, of, uint32(p.PID), epoch, event) })
	}
}

// finishVirtual returns what adds the waits of virtual threads that have not ended to a window that ends; frozen are those that the kernel side
// knows.
func (e *Source) finishVirtual(frozen map[bpf.VirtualThread]bpf.Frozen) func(*fold.State, *fold.Window) {
	type wait struct {
		process *target.Process
		kind    int
	}
	always, stopped := map[wait]bool{}, e.stopped.Load()
	for _, of := range e.virtualPlans() {
		always[wait{of.process, of.kind}] = of.sliced == 0
	}
	return func(s *fold.State, window *fold.Window) {
		end := window.Ended
		if stopped != 0 {
			end = min(end, time.Duration(stopped))
		}
		e.virtuals.sweep(frozen)
		e.virtuals.finish(s, window, end, func(p *target.Process, kind int) bool { return always[wait{p, kind}] })
		e.surveys.finish(s, window, end)
	}
}

// needNames calls need for the frames of the last survey of p.
func (v surveys) needNames(p *fold.Process, need func(target.RawFrame)) {
	if s := v[p.Process]; s != nil {
		for i := range s.last {
			event, _ := s.last[i].event(p.Process)
			for _, f := range event.Stack {
				need(f)
			}
		}
	}
}

// seedVirtual has the kernel side know of the waits that had begun before a process was observed.
func (e *Source) seedVirtual(ctx context.Context, seeded map[*target.Process]bool) {
	plans := map[*target.Process][]virtualPlan{}
	for _, of := range e.virtualPlans() {
		if of.sliced == 0 && of.turn == 1 && !seeded[of.process] {
			plans[of.process] = append(plans[of.process], of)
		}
	}
	maps.DeleteFunc(seeded, func(p *target.Process, _ bool) bool { return p.Exited.Load() })
	for p, of := range plans {
		seeded[p] = true
		now := proc.Monotonic()
		waiting, err := e.virtualWaiting(ctx, p, mostSeeded)
		if err != nil {
			e.services.Log.Debug("cannot see which virtual threads wait", "pid", p.PID, "err", err)
			continue
		}
		late := 0.
		for i := range waiting {
			for j := range of {
				if of[j].kind == waiting[i].kind() && e.seedWait(&of[j], &waiting[i], now) {
					late += waiting[i].weight
				}
			}
		}
		e.locks.noteLate(p, now, int(late))
	}
}

// seedWait has the kernel side know of one wait, since now. It returns false if it knows one, or has no room.
func (e *Source) seedWait(of *virtualPlan, v *waitingVirtual, now time.Duration) bool {
	key := bpf.VirtualThread{Serial: of.process.Attachment.Load(), Id: v.id}
	frozen := bpf.Frozen{Begin: uint64(now), Every: uint32(max(v.weight+0.5, 1)), Probe: of.cookie, Turn: of.turn, Kind: bpf.FrozenParked}
	if of.kind == virtualBlocks {
		frozen.Kind = bpf.FrozenMonitor
	}
	if e.Programs.FrozenThreads.Update(&key, &frozen, ebpf.UpdateNoExist) != nil {
		return false
	}
	event, epoch := v.event(of.process)
	event.Every = frozen.Every
	kept := false
	e.services.Owner.Do(func(s *fold.State) {
		if p := s.Table[of.process.PID]; p != nil && p.Process == of.process && !e.surveys[of.process].of(of.kind) {
			kept = e.virtuals.keep(s, virtualThread{p, v.id}, &virtualWait{event: event, epoch: epoch, begin: frozen.Begin})
		}
	})
	return kept
}

// A waitingVirtual is a virtual thread that has left its carrier, and waits for an object.
type waitingVirtual struct {
	vmruntime.VirtualDoing
	id     uint64
	weight float64 // how many threads it stands for
	stack  []byte  // a record of a Sample
}

func (v *waitingVirtual) kind() int { return virtualKind(v.State == vmruntime.VirtualBlocked) }

// event is that of its wait, without what it stands for; epoch is of its stack.
func (v *waitingVirtual) event(p *target.Process) (event fold.Event, epoch uint32) {
	event.Thread = virtualName
	lockWait(&event, v.Class, waitNames[v.kind()])
	var o bpf.Observation
	if bpf.DecodeSample(v.stack, &o.Sample) == nil {
		event.Stack, epoch = observedStack(nil, &o, p.Attachment.Load()), o.ClassEpoch
	}
	return event, epoch
}

// virtualWaiting draws about most of the process's virtual threads, and returns those that wait for an object. What was read of a thread is as of
// about one moment; those of which something could not be read are as the others.
func (e *Source) virtualWaiting(ctx context.Context, p *target.Process, most int) (waiting []waitingVirtual, err error) {
	threads, err := withLister(ctx, e, p, func(l vmruntime.VirtualLister) ([]vmruntime.VirtualThread, error) {
		return l.VirtualThreads(most, rand.IntN)
	})
	if err != nil {
		return nil, err
	}
	asked := make([]bpf.AskedVirtual, len(threads))
	all, seen := 0., 0.
	for i, v := range threads {
		asked[i] = bpf.AskedVirtual{Continuation: v.Continuation, Mounted: v.Mounted, State: v.State, Blocker: v.Blocker, Waiter: v.Waiter}
		all += v.Weight
	}
	var words []vmruntime.VirtualWords
	err = e.locks.stacks.readVirtual(p.Identity(), asked, time.Now().Add(surveyStacks), func(i int, v bpf.SeenVirtual) {
		seen += threads[i].Weight
		if len(v.Stack) > 0 {
			words = append(words, vmruntime.VirtualWords{State: v.State, Blocker: v.Blocker, Waiter: v.Waiter})
			waiting = append(waiting, waitingVirtual{id: threads[i].ID, weight: threads[i].Weight, stack: bytes.Clone(v.Stack)})
		}
	})
	if err == nil && 2*seen < all {
		err = fmt.Errorf("the stacks of %.0f of %.0f virtual threads could not be read", all-seen, all)
	}
	if err != nil || len(words) == 0 {
		return nil, err
	}
	doing, err := withLister(ctx, e, p, func(l vmruntime.VirtualLister) ([]vmruntime.VirtualDoing, error) { return l.DescribeVirtual(words) })
	if err != nil {
		return nil, err
	}
	for i := range waiting {
		waiting[i].VirtualDoing = doing[i]
		waiting[i].weight *= all / seen
	}
	return slices.DeleteFunc(waiting, func(v waitingVirtual) bool { return v.kind() == virtualParks && v.Class == "" }), nil
}

// withLister calls do with what lists p's virtual threads, in the worker that has the process.
func withLister[T any](ctx context.Context, e *Source, p *target.Process, do func(vmruntime.VirtualLister) ([]T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	got := make(chan []T, 1)
	err := e.services.Resolver.WithVM(ctx, p, func(g *target.VM) error {
		lister, err := target.As[vmruntime.VirtualLister](g)
		if err != nil {
			return err
		}
		list, err := do(lister)
		got <- list
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-got, nil
}
