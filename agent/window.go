package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// A Window is a time in which samples are folded. Any number can be open at once; each sees every sample.
type Window struct {
	agent *Agent
	start time.Time
	began time.Duration // CLOCK_MONOTONIC, as ended
	ended time.Duration
	pids  map[int]bool // nil: all

	// The rest is guarded by agent.mu while the window is open.
	processes map[*fold.Process]map[fold.ThreadKey]*fold.Thread
	calls     map[*fold.Process]*windowCalls
	events    map[*fold.Process]*fold.EventSet
	before    snapshot
	named     bool   // nothing is added any more
	filtered  uint64 // samples of processes that are not in pids
	received  uint64
	folded    uint64
	contexts  int // in all trees of processes
	discarded map[string]uint64
	covered   fold.CoveredParts // set when the window is closed
}

func newWindow(a *Agent, pids map[int]bool) *Window {
	return &Window{agent: a, pids: pids, began: monotonic(), processes: map[*fold.Process]map[fold.ThreadKey]*fold.Thread{}, calls: map[*fold.Process]*windowCalls{}, events: map[*fold.Process]*fold.EventSet{}, discarded: noDiscards()}
}

// add folds one sample. It tells whether the stack has contexts that are new to the window.
func (w *Window) add(p *fold.Process, s fold.Sample) (fresh bool) {
	w.hold(p)
	threads := w.processes[p]
	key := fold.KeyOf(s.Tid, s.Stopped != 0)
	t := threads[key]
	if t == nil {
		t = &fold.Thread{}
		threads[key] = t
	}
	w.folded++
	before := t.Contexts()
	fresh = t.Fold(s, w.agent.contexts < w.agent.opt.maxContexts())
	grown := t.Contexts() - before
	w.contexts += grown
	w.agent.contexts += grown
	return fresh
}

// A windowCalls is what a window has of the calls of one process.
type windowCalls struct {
	fold.CallSet
	reading profileReading // of its VM's counters, of each the first one in the window; guarded by agent.mu
}

// callSet is where calls of p are folded.
func (w *Window) callSet(p *fold.Process) *windowCalls {
	s := w.calls[p]
	if s == nil {
		s = &windowCalls{}
		w.calls[p] = s
		w.hold(p)
	}
	return s
}

// eventSet is where events of p are folded.
func (w *Window) eventSet(p *fold.Process) *fold.EventSet {
	s := w.events[p]
	if s == nil {
		s = &fold.EventSet{}
		w.events[p] = s
		w.hold(p)
	}
	return s
}

// wants tells whether the window is over a process.
func (w *Window) wants(pid uint32) bool { return w.pids == nil || w.pids[int(pid)] }

// hold notes that the window has something of p.
func (w *Window) hold(p *fold.Process) {
	if _, ok := w.processes[p]; !ok {
		w.processes[p] = map[fold.ThreadKey]*fold.Thread{}
		p.Holders++
	}
}

// Close ends the window and returns what it holds, named. It waits until everything that was sampled so far has been
// received and, up to Options.NameDeadline, until it has been named.
func (w *Window) Close(ctx context.Context) (*profile.Profile, error) {
	return w.end(ctx, nil)
}

// Next closes the window and opens its successor at the same moment: every sample is in exactly one of them.
func (w *Window) Next(ctx context.Context) (*Window, *profile.Profile, error) {
	next := newWindow(w.agent, w.pids)
	p, err := w.end(ctx, next)
	return next, p, err
}

func (w *Window) end(ctx context.Context, next *Window) (*profile.Profile, error) {
	a := w.agent
	if err := a.flush(ctx); err != nil {
		a.drop(w)
		return nil, err
	}
	defer a.release(w)
	if x := a.exactEngine(); x != nil {
		return x.end(ctx, w)
	}
	end := time.Now()
	processes, after := w.finish(end, next)

	if a.opt.Contexts == profile.ContextChain {
		a.place(w)
	}
	a.resolver.Wait(ctx, fold.Targets(processes), a.opt.NameDeadline)
	a.mu.Lock()
	w.named = true
	a.mu.Unlock()
	p := a.newProfile(w, end, after)
	p.Comments = append(p.Comments, a.roomNotes(&w.before.kernel, &after.kernel)...)
	if n := w.cut(); n > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%d samples count for a caller of their method, because the agent's memory holds only %d contexts; "+
			"increase its memory limit, or sample fewer processes or shorter windows", n, a.opt.maxContexts()))
	}
	p.Counts.Delivered, p.Counts.Folded, p.Counts.Discarded = w.received, w.folded, maps.Clone(w.discarded)
	// In flight at the beginning of the window there may be samples that were attempted before it.
	p.Counts.Attempted -= min(p.Counts.Attempted, w.filtered)
	p.Counts.Filtered += w.filtered
	var finishes []func()
	for source := range a.sources.all() {
		if finish := source.fill(ctx, &closedWindow{w, processes, after}, p); finish != nil {
			finishes = append(finishes, finish)
		}
	}
	for _, proc := range processes {
		p.Processes = append(p.Processes, w.profileOf(proc, &p.Counts))
	}
	for _, finish := range finishes {
		finish()
	}
	for _, proc := range a.unsampled(w) {
		p.Processes = append(p.Processes, w.profileOf(proc, &p.Counts))
	}
	return p, nil
}

// unsampled are the chosen processes of which the window has nothing: why that is, their notes may say. Where all processes are
// sampled, most have nothing to do, so that nobody asks.
func (a *Agent) unsampled(w *Window) (processes []*fold.Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pid := range a.opt.PIDs {
		if p := a.table[pid]; p != nil && w.processes[p] == nil && w.wants(uint32(pid)) && !slices.Contains(processes, p) {
			processes = append(processes, p)
		}
	}
	return processes
}

// finish takes the window out of those that are open, and opens the next one if there is one.
func (w *Window) finish(end time.Time, next *Window) (processes []*fold.Process, after snapshot) {
	a := w.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sources.flush()
	w.ended = monotonic()
	after = a.snapshot()
	delete(a.windows, w)
	a.closing[w] = struct{}{}
	if next != nil {
		next.start, next.began, next.before = end, w.ended, after
		a.windows[next] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(w.processes), fold.Earlier), after
}

// cut is how many samples found no room for their whole context; the window is closed.
func (w *Window) cut() (samples uint64) {
	for _, threads := range w.processes {
		for _, t := range threads {
			for i := range t.Trees {
				samples += t.Trees[i].Overflow()
			}
		}
	}
	return samples
}

// profileOf is a process's part of the profile. If the agent panics over it, the process has none.
func (w *Window) profileOf(p *fold.Process, counts *profile.Counts) *profile.Process {
	a := w.agent
	var named *profile.Process
	var samples uint64
	for _, t := range w.processes[p] {
		for i := range t.Trees {
			samples += t.Trees[i].Total()
		}
	}
	err := a.resolver.Attempt(target.StageWindow, p.Process, func() {
		sums := *counts
		sums.Truncated = maps.Clone(counts.Truncated)
		out := p.Profile(w.processes[p], &sums)
		if note := p.MissingFrames(w.began); note != "" {
			out.Notes = append(out.Notes, note)
		}
		out.Contexts = a.contextsOf(p, w.processes[p])
		a.empty(w.processes[p])
		if a.opt.NoTime {
			out.Threads = nil
		}
		out.Events = w.namedEvents(p)
		named, *counts = out, sums
	})
	if err != nil {
		counts.Folded -= samples
		counts.Discarded[profile.Failed] += samples
		named = fold.ProfileOf(p.Process)
	}
	return named
}

// empty forgets samples that are in a profile by now: their memory is better used for the next window.
func (a *Agent) empty(threads map[fold.ThreadKey]*fold.Thread) {
	a.mu.Lock() // of another window that closes, which may ask for the frames of this one
	defer a.mu.Unlock()
	for _, t := range threads {
		*t = fold.Thread{}
	}
}

// newProfile is the profile of w before anything is in it.
func (a *Agent) newProfile(w *Window, end time.Time, after snapshot) *profile.Profile {
	return &profile.Profile{
		Start: w.start, Duration: end.Sub(w.start), Period: a.period(),
		Comments: a.comments(),
		Counts:   after.since(w.before),
	}
}

// drop closes a window whose content nobody wants.
func (a *Agent) drop(w *Window) {
	a.mu.Lock()
	delete(a.windows, w)
	a.mu.Unlock()
	a.release(w)
}

// release forgets the names that only w, which is closed, needed.
func (a *Agent) release(w *Window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.closing, w)
	a.contexts -= w.contexts
	w.contexts = 0
	for p := range w.processes {
		p.Holders--
		a.trim(p)
	}
	w.processes, w.calls, w.events = nil, nil, nil
	if a.nameCount.Load() > fold.MaxNames/2 {
		for _, p := range a.table {
			a.trim(p)
		}
	}
}

// trim forgets what p's names no open or closing window needs, if p is gone, or names are many; mu is held.
func (a *Agent) trim(p *fold.Process) {
	gone := p.Exited.Load() && p.Holders == 0
	if !gone && len(p.Requested) < fold.TrimNames && a.nameCount.Load() <= fold.MaxNames/2 {
		return
	}
	needed := map[target.RawFrame]struct{}{}
	need := func(r target.RawFrame) { needed[r] = struct{}{} }
	for _, windows := range []map[*Window]struct{}{a.windows, a.closing} {
		for w := range windows {
			for _, t := range w.processes[p] {
				t.Frames(need)
			}
			if s := w.calls[p]; s != nil {
				s.Frames(need)
			}
			if s := w.events[p]; s != nil {
				s.Frames(need)
			}
		}
	}
	for source := range a.sources.all() {
		source.needNames(p, need)
	}
	p.Trim(needed, &a.nameCount)
}
