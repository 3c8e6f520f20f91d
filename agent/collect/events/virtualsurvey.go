package events

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Surveys say what virtual threads wait for while probes are attached in slices of time. A wait
// seldom fits into a slice, so its length is not seen. But a draw of the threads at a random moment
// shows which part of them waits, and where: the time of waits is that part of the time of all
// threads. Nothing is attached for a survey, and its cost depends neither on how many threads there
// are nor on how often they wait. How often they begin to wait is counted in the slices.

// surveys are the processes whose virtual threads are surveyed. Only functions that have the State
// use it.
type surveys map[*guest.Process]*survey

// A survey is what of the waits of a process's virtual threads is taken from surveys.
type survey struct {
	// CLOCK_MONOTONIC: up to when lengths are known of waits of each kind; 0 if they do not come
	// from surveys
	until [probes.VirtualKinds]time.Duration
	since [probes.VirtualKinds]time.Duration // the first of until
	known [probes.VirtualKinds]time.Duration // time of waits that ended after until: it is to be counted once
	last  virtualLook                        // what the last survey found
	seen  int                                // surveys that succeeded
	fails int                                // surveys since then that failed
	why   string                             // why the last one did; "" if it did not
}

// waitNames is what a wait of each kind is called: profile.EventLabels.What.
var waitNames = [probes.VirtualKinds]string{probes.VirtualParks: "park", probes.VirtualBlocks: "block"}

// coversKind reports whether the lengths of waits of that kind are taken from surveys.
func (s *survey) coversKind(kind int) bool { return s != nil && !s.failed() && s.until[kind] != 0 }

// covers reports whether the length of a wait that began then is taken from surveys, or from what
// slices see of it.
func (s *survey) covers(kind int, sliced bool, begin uint64) bool {
	return !s.failed() && (sliced || s.coversKind(kind) && time.Duration(begin) >= s.since[kind])
}

// failed reports whether no more are tried.
func (s *survey) failed() bool { return s != nil && s.fails >= mostFailures }

// lack is why waits may be missing though they are surveyed; "" if none are.
func (s *survey) lack() string {
	switch {
	case s == nil || !s.failed() && !s.any():
		return ""
	case s.why != "":
		return surveysFailed + ": " + s.why
	case s.seen == 0:
		return "no survey of them was finished"
	}
	return ""
}

// any reports whether lengths of waits are.
func (s *survey) any() bool {
	return s.coversKind(probes.VirtualParks) || s.coversKind(probes.VirtualBlocks)
}

// Bounds of surveys.
const (
	mostSurveyed   = 1024 // threads of a process
	mostStacks     = 32   // waiting threads whose stacks are read, which takes some 0.2 ms each
	mostSeeded     = 512  // threads of the first survey, each with its stack
	shortestPeriod = 250 * time.Millisecond
	longestPeriod  = 2 * time.Second // unless surveys take surveyShare of it
	surveyShare    = 0.05            // part of a CPU
	surveyStacks   = time.Second     // time limit for reading the stacks of one survey
	shortBefore    = 5 * time.Second // time before a survey for which it may stand
	mostFailures   = 8               // surveys of a process in a row that fail, before it is given up
)

// virtualName is the name of virtual threads in rows: there may be any number of them, and most
// have none.
const virtualName = "virtual thread"

// surveyVirtual surveys virtual threads until ctx ends, in each period at a moment that is drawn.
// Periods are so long that surveys stay within the budget of locks.
func (e *Source) surveyVirtual(ctx context.Context) {
	begin, period := time.Now(), shortestPeriod
	for {
		e.seedVirtual(ctx)
		if len(e.VirtualPlans()) == 0 {
			e.toSurvey() // forgets processes that have ended
			if !sleepUntil(ctx, time.Now().Add(proc.InStep(shortestPeriod))) {
				return
			}
			begin = time.Now()
			continue
		}
		end := begin.Add(period)
		if !sleepUntil(ctx, begin.Add(rand.N(period))) {
			return
		}
		cost := time.Duration(0)
		for p, first := range e.toSurvey() {
			took := surveyCost(func() { e.trySurvey(ctx, p) })
			if !first { // which finds out where the class library keeps its list
				cost += took
			}
		}
		if !sleepUntil(ctx, end) {
			return
		}
		begin, period = end, e.surveyPeriod(cost)
	}
}

// surveyCost is what do takes: the agent's CPU time meanwhile, or the time that passes if that is
// less. On a busy machine most of the latter is spent waiting for a CPU.
func surveyCost(do func()) time.Duration {
	began := time.Now()
	before, _ := proc.CPUTime(os.Getpid())
	do()
	passed := time.Since(began)
	if after, ok := proc.CPUTime(os.Getpid()); ok {
		return min(after-before, passed)
	}
	return passed
}

// trySurvey surveys one process. It is tried again if that fails.
func (e *Source) trySurvey(ctx context.Context, p *guest.Process) {
	if err := e.surveyOne(ctx, p); err != nil && ctx.Err() == nil {
		e.services.Log.Debug("cannot survey virtual threads", "pid", p.PID, "err", err)
		e.noSurvey(p, err)
	}
}

// surveyLast surveys the processes for which that was to be done, but has not been yet, when
// recording ends.
func (e *Source) surveyLast() {
	for p, first := range e.toSurvey() {
		if first {
			e.trySurvey(context.Background(), p)
		}
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
	cpus := e.AffordableCPUs(profile.Locks, e.UsedCPUs())
	most := max(longestPeriod, time.Duration(float64(cost)/surveyShare))
	return min(max(time.Duration(float64(cost)/max(cpus, 1e-9)), shortestPeriod), most)
}

// toSurvey returns the processes that are to be surveyed now: those of whose virtual threads waits
// are observed in slices of time. One that was surveyed once goes on to be. The value says that it
// has not been yet.
func (e *Source) toSurvey() map[*guest.Process]bool {
	found := map[*guest.Process]bool{}
	plans := e.VirtualPlans()
	e.services.Owner.Do(func(st *fold.State) {
		for p := range e.surveys {
			if p.Exited.Load() {
				delete(e.surveys, p)
			}
		}
		for _, of := range plans {
			s := e.surveys[of.Process]
			if of.Sliced != 0 && !s.coversKind(of.Kind) && !s.failed() {
				if s == nil {
					s = &survey{}
					e.surveys[of.Process] = s
				}
				early := false
				s.until[of.Kind], s.since[of.Kind] = of.Sliced, of.Sliced
				if p := st.Table[of.Process.PID]; p != nil && p.Process == of.Process {
					s.until[of.Kind] = max(of.Sliced, p.Noticed)
					// Of waits that began before the probes came, nothing is known, or only some
					// time later.
					if born := max(of.Cover.BornAt(), p.Noticed); !e.seeded[of.Process].finished() ||
						of.Sliced-born < shortBefore {
						early = true
						s.until[of.Kind] = min(born, s.until[of.Kind])
						s.known[of.Kind] = e.virtuals.ended[virtualProcess{of.Process, of.Kind}]
						e.locks.forgetLate(of.Process)
					}
				}
				of.Cover.Surveyed.Store(of.Kind == probes.VirtualParks) // other threads wait for monitors, too
				e.virtuals.settle(st, of.Process, of.Kind, of.Sliced, !early)
			}
		}
		for p, s := range e.surveys {
			if s.any() {
				found[p] = s.seen == 0
			}
		}
	})
	return found
}

// noSurvey notes that a survey of a process failed. After some in a row, none is tried again.
func (e *Source) noSurvey(p *guest.Process, why error) {
	failed := fold.Get(e.services.Owner, func(*fold.State) bool {
		s := e.surveys[p]
		if s == nil {
			return false // it has ended
		}
		s.fails++
		s.why = why.Error()
		return s.failed()
	})
	if !failed {
		return
	}
	e.services.Log.Warn("cannot survey virtual threads: their waits are not recorded any more", "pid", p.PID, "err",
		why)
	for _, of := range e.VirtualPlans() {
		if of.Process == p {
			of.Cover.Surveyed.Store(false)
		}
	}
}

// surveyOne surveys one process.
func (e *Source) surveyOne(ctx context.Context, p *guest.Process) error {
	look, err := e.virtualWaiting(ctx, p, mostSurveyed, mostStacks)
	if err != nil {
		return err
	}
	now := proc.Monotonic()
	e.services.Owner.Do(func(st *fold.State) {
		s, of := e.surveys[p], st.Table[p.PID]
		if s == nil || of == nil || of.Process != p {
			return
		}
		s.last, s.fails, s.why = look, 0, ""
		s.leaveKnown(now)
		s.seen++
		s.each(p, now, func(epoch uint32, event *fold.Event) { st.AddEvent(of, uint32(p.PID), epoch, event) })
		s.looks(now, false, func(l *fold.Look) { st.AddLook(of, l) })
		for kind := range s.until {
			if s.coversKind(kind) {
				s.until[kind] = now
			}
		}
	})
	return nil
}

// each calls do for events of the waits that the last survey found, which stand for the time from
// until to then.
func (s *survey) each(p *guest.Process, then time.Duration, do func(epoch uint32, event *fold.Event)) {
	for i := range s.last.waiting {
		v := &s.last.waiting[i]
		from := s.until[v.kind()]
		if s.seen == 0 || !s.coversKind(v.kind()) || from >= then {
			continue
		}
		event, epoch := v.event(p)
		event.Every, event.Length = fold.Moment, fold.LengthsLooked
		event.Sums = fold.EventSums{Events: 1,
			Values: [profile.MaxEventValues]float64{2: v.weight * float64(then-from)}}
		event.Sums.Known = event.Sums.Values // whatever part of the records of probes was lost
		event.Lock = &fold.LockWait{Since: from, Until: then, Counted: true, Waiting: true}
		do(epoch, &event)
	}
}

// leaveKnown takes the time of waits that are known from the first survey's.
func (s *survey) leaveKnown(now time.Duration) {
	for kind := range s.known {
		threads := s.threads(kind)
		if s.known[kind] > 0 && threads > 0 {
			s.until[kind] = min(s.until[kind]+time.Duration(float64(s.known[kind])/threads), max(now, s.until[kind]))
		}
		s.known[kind] = 0
	}
}

// threads is how many threads the last survey found in waits for locks.
func (s *survey) threads(kind int) (sum float64) {
	for i := range s.last.waiting {
		if v := &s.last.waiting[i]; v.kind() == kind && (kind == probes.VirtualBlocks || !waitsForWork(v.Class)) {
			sum += v.weight
		}
	}
	return sum
}

// looks calls do for what the last survey says of the time from until to then: again if it is in a
// window already.
func (s *survey) looks(then time.Duration, again bool, do func(*fold.Look)) {
	for kind, from := range s.until {
		if s.seen == 0 || !s.coversKind(kind) || from >= then {
			continue
		}
		do(&fold.Look{Monitor: kind == probes.VirtualBlocks, Since: from, Until: then, Waiting: s.threads(kind),
			Weight: s.last.weight, Again: again})
	}
}

// A surveyedPart says whether surveys say how long waits of a process are, and why some may be
// missing; "" if none are.
type surveyedPart struct {
	any  bool
	lack string
}

// surveyedParts are those of all processes. Only functions that have the State call it.
func (e *Source) surveyedParts() map[*guest.Process]surveyedPart {
	found := map[*guest.Process]surveyedPart{}
	for p, s := range e.seeded {
		if lack := s.lack(); lack != "" {
			found[p] = surveyedPart{lack: lack}
		}
	}
	for p, s := range e.surveys { // these know of all waits
		found[p] = surveyedPart{s.any(), s.lack()}
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
		survey.each(p, end, func(epoch uint32, event *fold.Event) {
			window.AddLockWait(s, of, uint32(p.PID), epoch,
				event)
		})
		survey.looks(end, true, func(l *fold.Look) { window.AddLook(of, l) })
	}
}

// finishVirtual returns what adds the waits of virtual threads that have not ended to a window that
// ends; frozen are those that the kernel side knows.
func (e *Source) finishVirtual(frozen map[bpf.VirtualThread]bpf.UnmountedWait) func(*fold.State, *fold.Window) {
	type wait struct {
		process *guest.Process
		kind    int
	}
	always, stopped := map[wait]bool{}, e.stopped.Load()
	for _, of := range e.VirtualPlans() {
		always[wait{of.Process, of.Kind}] = of.Sliced == 0
	}
	return func(s *fold.State, window *fold.Window) {
		end := window.Ended
		if stopped != 0 {
			end = min(end, time.Duration(stopped))
		}
		e.virtuals.sweep(frozen)
		e.virtuals.finish(s, window, end, func(p *guest.Process, kind int) bool { return always[wait{p, kind}] })
		e.surveys.finish(s, window, end)
	}
}

// needNames calls need for the frames of the last survey of p.
func (v surveys) needNames(p *fold.Process, need func(guest.RawFrame)) {
	if s := v[p.Process]; s != nil {
		for i := range s.last.waiting {
			event, _ := s.last.waiting[i].event(p.Process)
			for _, f := range event.Stack {
				need(f)
			}
		}
	}
}
