package fold

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/lanes"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A Window is a time in which samples are folded. While it is open it belongs to a State. Once
// closed it gets no more samples, and the function that closed it may read all of it. Functions
// that change it still take a State, as other windows may request its frames.
type Window struct {
	Began, Ended time.Duration // CLOCK_MONOTONIC
	PIDs         map[int]bool  // nil: all

	Processes map[*Process]map[ThreadKey]*Thread
	Calls     map[*Process]*CallSet
	Events    map[*Process]*EventSet
	// Slow are the invocations that ended in it, the slowest first; they do not change, and other
	// windows may have them.
	Slow      []*SlowCall
	Named     bool   // nothing is added any more
	Filtered  uint64 // samples of processes that are not in PIDs
	Received  uint64
	Folded    uint64
	Discarded map[string]uint64
	contexts  int // contexts in all trees of processes
	courses   courses
	lanes     lanes.Recorder[*Process, *EventSums]
	// Continued says that another window begins where this one ends. It is set before sources
	// finish the window.
	Continued bool
	// Waits says that waits are recorded, so that threads have lanes.
	Waits bool
	// RunTimes are how long the threads of processes ran, by the scheduler. Processes that did not
	// run are missing; those that are too many are under the zero Life.
	RunTimes    map[Life]*LifeTime
	threadTimes int // number of threads in RunTimes
	// OnBefore is how long threads had been on a CPU when the window began, by their ids. It is nil
	// if nobody looked, as where another window ended.
	OnBefore map[uint32]ThreadOn
	ended    map[*Process]profile.ThreadTime // times of threads that ended in the window, where waits are recorded

	// For a closing window whose samples are given their contexts.
	placing map[*Process]*Placing // begun, and perhaps not finished
	placed  bool                  // all of them are finished
}

// A ThreadOn is how long a thread had been on a CPU at some time since it was made known.
type ThreadOn struct {
	Born uint64 // guards against a reused id
	On   time.Duration
}

// NewWindow returns a window that begins now, and is not open yet.
func NewWindow(pids map[int]bool) *Window {
	return &Window{
		PIDs: pids, Began: proc.Monotonic(), Discarded: NoDiscards(),
		Processes: map[*Process]map[ThreadKey]*Thread{}, Calls: map[*Process]*CallSet{},
		Events: map[*Process]*EventSet{},
	}
}

// Wants reports whether the window includes a process.
func (w *Window) Wants(pid int) bool { return w.PIDs == nil || w.PIDs[pid] }

// hold records that the window has data of p.
func (w *Window) hold(p *Process) {
	if _, ok := w.Processes[p]; !ok {
		w.Processes[p] = map[ThreadKey]*Thread{}
		p.Holders++
	}
}

// Contexts returns the number of contexts in the window.
func (w *Window) Contexts() int { return w.contexts }

// CallSet returns the set where calls of p are folded.
func (w *Window) CallSet(p *Process) *CallSet { return setOf(w, w.Calls, p) }

// EventSet returns the set where events of p are folded.
func (w *Window) EventSet(p *Process) *EventSet { return setOf(w, w.Events, p) }

// setOf returns p's set from the window's sets, and makes an empty one if p has none.
func setOf[T any](w *Window, sets map[*Process]*T, p *Process) *T {
	s := sets[p]
	if s == nil {
		s = new(T)
		sets[p] = s
		w.hold(p)
	}
	return s
}

// Overflow returns how many samples of a closed window had no room for their whole context.
func (w *Window) Overflow() (samples uint64) {
	for _, threads := range w.Processes {
		for _, t := range threads {
			for i := range t.Trees {
				samples += t.Trees[i].Overflow()
			}
		}
	}
	return samples
}

// frames calls need for the frames of p in the window.
func (w *Window) frames(p *Process, need func(guest.RawFrame)) {
	for _, t := range w.Processes[p] {
		t.Frames(need)
	}
	if s := w.Calls[p]; s != nil {
		s.Frames(need)
	}
	if s := w.Events[p]; s != nil {
		s.Frames(need)
	}
	for _, call := range w.Slow {
		if call.Process == p {
			call.frames(need)
		}
	}
}

// Open adds a window, which gets all samples folded from now on.
func (s *State) Open(w *Window) {
	s.windows[w] = struct{}{}
	s.Slow.limit(s)
}

// Windows returns the open windows, in no order.
func (s *State) Windows() []*Window { return slices.Collect(maps.Keys(s.windows)) }

// Contexts returns the number of contexts in all windows.
func (s *State) Contexts() int { return s.contexts }

// Close ends a window. Its frames keep their names until it is released.
func (s *State) Close(w *Window) (processes []*Process) {
	delete(s.windows, w)
	s.closing[w] = struct{}{}
	s.Slow.limit(s)
	return slices.SortedFunc(maps.Keys(w.Processes), Earlier)
}

// Release forgets a window, and the names that only it needed. It borrows the state for one process
// at a time: searching the data of all windows for many processes takes longer than the ring may
// wait.
func (o *Owner) Release(w *Window) {
	held := Get(o, func(s *State) []*Process { return s.release(w) })
	for _, p := range held {
		o.Do(func(s *State) { s.Trim(p) })
	}
	many := Get(o, func(s *State) []*Process {
		if s.Names <= MaxNames/2 {
			return nil
		}
		return slices.Collect(maps.Values(s.Table))
	})
	for _, p := range many {
		o.Do(func(s *State) { s.Trim(p) })
	}
}

// release forgets a window, and returns its processes: their names are yet to be trimmed.
func (s *State) release(w *Window) (held []*Process) {
	delete(s.windows, w)
	delete(s.closing, w)
	s.Slow.limit(s)
	s.contexts -= w.contexts
	w.contexts = 0
	for p := range w.Processes {
		p.Holders--
		held = append(held, p)
	}
	w.Processes, w.Calls, w.Events, w.Slow, w.RunTimes, w.courses, w.lanes = nil, nil, nil, nil, nil, courses{},
		lanes.Recorder[*Process, *EventSums]{}
	return held
}

// Trim forgets p's names that no open or closing window needs, if p is gone or has many names.
func (s *State) Trim(p *Process) {
	gone := p.Exited.Load() && p.Holders == 0
	if !gone && !p.lingering && len(p.Requested) < TrimNames && s.Names <= MaxNames/2 {
		return
	}
	needed := map[guest.RawFrame]struct{}{}
	need := func(r guest.RawFrame) { needed[r] = struct{}{} }
	for _, windows := range []map[*Window]struct{}{s.windows, s.closing} {
		for w := range windows {
			w.frames(p, need)
		}
	}
	s.Slow.frames(p, need)
	if s.opt.NeedNames != nil {
		s.opt.NeedNames(s, NamesOf{p, need})
	}
	p.Trim(needed, &s.Names)
}

// add folds one sample. It returns how many frames of its stack, from the innermost one on, are
// contexts that are new to the window.
func (s *State) add(w *Window, p *Process, t *Sample) (fresh int) {
	w.hold(p)
	thread := threadOf(w.Processes[p], t)
	w.Folded++
	w.courses.add(p, time.Duration(t.Time)-w.Began)
	if w.Waits {
		w.lanes.Ran(p, t.Tid, time.Duration(t.Time)-w.Began)
	}
	before := thread.Contexts()
	fresh = thread.Fold(t, s.room())
	grown := thread.Contexts() - before
	s.grow(w, grown)
	return fresh
}

// threadOf returns the thread of a sample under the name that it had, which it adds if it is not
// there.
func threadOf(threads map[ThreadKey]*Thread, t *Sample) *Thread {
	name := commOf(t.Comm)
	for nth := 0; ; nth++ {
		key := keyOf(t.Tid, nth, t.Stopped != 0)
		thread := threads[key]
		switch {
		case thread == nil:
			thread = &Thread{Comm: name}
			threads[key] = thread
			return thread
		case thread.Comm == name:
			return thread
		case nth == maxThreadNames-1:
			thread.Comm = name
			return thread
		}
	}
}

// grow counts contexts that were added to a window.
func (s *State) grow(w *Window, contexts int) {
	w.contexts += contexts
	s.contexts += contexts
}

// room reports whether windows may have more contexts.
func (s *State) room() bool { return s.contexts < s.opt.MaxContexts }

// Longest returns the longest-open window with samples of p; nil if there is none.
func (s *State) Longest(p *Process) (longest *Window) {
	for w := range s.windows {
		if w.Processes[p] != nil && (longest == nil || w.Began < longest.Began) {
			longest = w
		}
	}
	return longest
}

// Empty drops samples that are already in a profile, to free their memory for the next window.
func (s *State) Empty(threads map[ThreadKey]*Thread) {
	for _, t := range threads {
		*t = Thread{Comm: t.Comm}
	}
}

const (
	// maxCourse bounds a course: those of longer windows end after a minute.
	maxCourse = int(time.Minute / profile.CourseStep)
	// maxCourses is how many processes of a window have a course of their own: those that are
	// sampled first.
	maxCourses = 64
)

// courses are when the samples of a window were taken.
type courses struct {
	all []uint16
	of  map[*Process]*[]uint16
}

// add counts a sample that was taken so long after the beginning of the window.
func (c *courses) add(p *Process, since time.Duration) {
	step := int(max(since, 0) / profile.CourseStep)
	if step >= maxCourse {
		return
	}
	count(&c.all, step)
	own := c.of[p]
	if own == nil {
		if len(c.of) >= maxCourses {
			return
		}
		if c.of == nil {
			c.of = make(map[*Process]*[]uint16)
		}
		own = new([]uint16)
		c.of[p] = own
	}
	count(own, step)
}

func count(course *[]uint16, step int) {
	for len(*course) <= step {
		*course = append(*course, 0)
	}
	if n := &(*course)[step]; *n < math.MaxUint16 {
		*n++
	}
}

// Course is when samples of the window were taken, as profile.Profile.Course has it. It may be read
// once the window is closed.
func (w *Window) Course() []uint16 { return w.courses.all }

// CourseOf is Course of one process; nil if it has none of its own.
func (w *Window) CourseOf(p *Process) []uint16 {
	if own := w.courses.of[p]; own != nil {
		return *own
	}
	return nil
}
