package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/wall"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A Window is a time in which samples are folded. Any number can be open at once; each sees every
// sample.
type Window struct {
	agent  *Agent
	start  time.Time
	open   *fold.Window
	before source.Snapshot
	later  bool // it follows another window without a gap
}

// Open begins a window over these processes, nil for all.
func (a *Agent) Open(pids []int) *Window {
	var chosen map[int]bool
	if len(pids) > 0 {
		chosen = map[int]bool{}
		for _, pid := range pids {
			chosen[pid] = true
		}
	}
	w := newWindow(a, chosen)
	snapshot := a.snapshot()
	a.owner.Do(func(s *fold.State) {
		w.before = snapshot(s)
		for one := range implementing[source.Opener](&a.sources) {
			one.Opened(s, w.open)
		}
		w.start, w.open.Began = time.Now(), monotonic()
		s.Open(w.open)
	})
	return w
}

// Follow hands one window after the other to observe, each of that length, until ctx ends. Every
// sample is in exactly one of them. The last one, which ends with ctx, is shorter; it is dropped if
// it has less than a tenth of the length. If observe panics, that is counted and logged, and costs
// that window: what is in it comes from processes.
func (a *Agent) Follow(ctx context.Context, length time.Duration, observe func(*profile.Profile)) error {
	tick := time.NewTicker(length)
	defer tick.Stop()
	w := a.Open(nil)
	defer func() { a.drop(w) }()
	for {
		select {
		case <-ctx.Done():
			p, err := w.Close(context.WithoutCancel(ctx))
			if err != nil {
				return fmt.Errorf("close the last window: %w", err)
			}
			if p.Duration >= length/10 {
				a.services.Resolver.Keep(guest.StageObserve, func() { observe(p) })
			}
			return nil
		case <-tick.C:
		}
		next, p, err := w.Next(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("close window: %w", err)
		}
		w = next
		a.services.Resolver.Keep(guest.StageObserve, func() { observe(p) })
	}
}

// Collect opens a window, closes it after d or when ctx ends, and returns what it holds.
func (a *Agent) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	a.sources.expect(d)
	w := a.Open(pids)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return w.Close(context.WithoutCancel(ctx))
}

func newWindow(a *Agent, pids map[int]bool) *Window {
	open := fold.NewWindow(pids)
	open.Waits = a.opt.Events.Waits()
	return &Window{agent: a, open: open}
}

// Close ends the window and returns what it holds, named. It waits until everything that was
// sampled so far has been received and, up to Options.NameDeadline, until it has been named.
func (w *Window) Close(ctx context.Context) (*profile.Profile, error) {
	return w.end(ctx, nil)
}

// Next closes the window and opens its successor at the same moment: every sample is in exactly one
// of them. There is no successor if it fails, as it does where a source makes whole profiles: what
// that counts ends with the first window, which stays open.
func (w *Window) Next(ctx context.Context) (*Window, *profile.Profile, error) {
	if w.agent.sources.ender() != nil {
		return nil, nil, errors.New("a recording that counts every call has only one window")
	}
	next := newWindow(w.agent, w.open.PIDs)
	next.later = true
	p, err := w.end(ctx, next)
	if err != nil {
		return nil, nil, err
	}
	return next, p, nil
}

func (w *Window) end(ctx context.Context, next *Window) (*profile.Profile, error) {
	a := w.agent
	defer a.drop(w)
	if err := a.flush(ctx); err != nil {
		return nil, err
	}
	if ender := a.sources.ender(); ender != nil {
		var failed error
		p, err := ender.End(ctx, func() *profile.Profile {
			var closed *source.Closed
			var end time.Time
			closed, end, failed = a.close(w, nil)
			p := a.newProfile(w, end, closed.After)
			p.Unit = profile.CallCounts
			return p
		})
		if err := cmp.Or(err, failed); err != nil {
			return nil, err
		}
		return p, nil
	}
	closed, end, err := a.close(w, next)
	if err != nil {
		return nil, err
	}
	if a.opt.Contexts == profile.ContextChain {
		a.place(closed.Window)
	}
	for _, p := range closed.Processes {
		if p.Attachment.Load() != 0 && !p.Exited.Load() {
			p.WantVersions()
			a.services.Resolver.Submit(p.Process)
		}
	}
	a.services.Resolver.Wait(ctx, fold.Targets(closed.Processes), a.opt.NameDeadline)
	a.services.Resolver.DropIdle()
	a.owner.Do(func(*fold.State) { closed.Named = true })
	return a.profileOf(ctx, closed, a.newProfile(w, end, closed.After)), nil
}

// close takes a window out of those that are open, and opens the next one if there is one. It
// returns when that was.
func (a *Agent) close(w *Window, next *Window) (closed *source.Closed, end time.Time, err error) {
	closed = &source.Closed{Window: w.open, Before: w.before}
	end = time.Now()
	snapshot := a.snapshot()
	var finish []func(*fold.State, *fold.Window)
	for one := range implementing[source.Finisher](&a.sources) {
		finish = append(finish, one.Finishing())
	}
	w.open.Continued = next != nil
	err = a.owner.Do(func(s *fold.State) {
		s.Flush()
		now := monotonic()
		w.open.Ended, end = now, time.Now()
		if stopped := time.Duration(a.stopped.Load()); stopped != 0 { // nothing was seen after that
			w.open.Ended = max(min(now, stopped), w.open.Began)
			end = end.Add(w.open.Ended - now)
		}
		for _, f := range finish {
			f(s, w.open)
		}
		closed.After = snapshot(s)
		closed.Processes = s.Close(w.open)
		if next != nil {
			next.start, next.open.Began, next.before = end, w.open.Ended, closed.After
			s.Open(next.open)
		}
	})
	return closed, end, err
}

// place gives the samples of a closed window their contexts.
func (a *Agent) place(w *fold.Window) {
	a.owner.PlaceAll(w, func(p *fold.Process, do func()) error {
		return a.services.Resolver.Attempt(guest.StageWindow, p.Process, do)
	})
}

// newProfile is the profile of w before anything is in it.
func (a *Agent) newProfile(w *Window, end time.Time, after source.Snapshot) *profile.Profile {
	counts := countsSince(&w.before, &after)
	if !w.later { // else they are in the account of the window before
		counts.Attempted += inFlight(&w.before)
	}
	return &profile.Profile{
		Start: w.start, Duration: end.Sub(w.start), Period: a.period(),
		Comments: a.comments(),
		Counts:   counts,
	}
}

// profileOf completes the profile of a closed window.
func (a *Agent) profileOf(ctx context.Context, w *source.Closed, p *profile.Profile) *profile.Profile {
	p.Comments = append(p.Comments, a.roomNotes(&w.Before.Kernel, &w.After.Kernel)...)
	p.Comments = append(p.Comments, a.tables.Notes()...)
	if n := a.services.Resolver.LoadedLost(); n > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%d records of BPF programs that were loaded or unloaded were "+
			"lost: some have no names, or those of earlier ones", n))
	}
	if n := w.Overflow(); n > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%d samples count for a caller of their method, because the "+
			"agent's memory holds only %d contexts; "+
			"increase its memory limit, or sample fewer processes or shorter windows", n, a.opt.maxContexts()))
	}
	p.Counts.Delivered, p.Counts.Folded, p.Counts.Discarded = w.Received, w.Folded, maps.Clone(w.Discarded)
	// In flight at the beginning of the window there may be samples that were attempted before it.
	p.Counts.Attempted -= min(p.Counts.Attempted, w.Filtered)
	p.Counts.Filtered += w.Filtered
	if !a.opt.NoTime {
		p.Course = w.Course()
	}
	var parts []source.Part
	for one := range implementing[source.Filler](&a.sources) {
		a.attempt(p, func() { parts = append(parts, one.Fill(ctx, w, p)) })
	}
	for _, of := range w.Processes {
		p.Processes = append(p.Processes, a.processProfile(w.Window, of, parts, &p.Counts))
	}
	for _, part := range parts {
		if part.Finish != nil {
			a.attempt(p, part.Finish)
		}
	}
	for _, of := range a.unsampled(w.Window) {
		p.Processes = append(p.Processes, a.processProfile(w.Window, of, parts, &p.Counts))
	}
	return p
}

// attempt has a source do its part of a profile. A panic is counted and logged, and costs that
// part.
func (a *Agent) attempt(p *profile.Profile, do func()) {
	err := proc.Catch(func() error {
		do()
		return nil
	})
	if err != nil {
		a.requestFailed(err)
		p.Comments = append(p.Comments, fmt.Sprintf("a part of this profile is missing: %v. This is a bug of the "+
			"agent; its log contains the stack.", err))
	}
}

// unsampled are the chosen processes of which the window has nothing: why that is, their notes may
// say. Where all processes are sampled, most have nothing to do, so that nobody asks.
func (a *Agent) unsampled(w *fold.Window) (processes []*fold.Process) {
	a.owner.Do(func(s *fold.State) {
		for _, pid := range a.opt.PIDs {
			if p := s.Table[pid]; p != nil && w.Processes[p] == nil && w.Wants(pid) && !slices.Contains(processes, p) {
				processes = append(processes, p)
			}
		}
	})
	return processes
}

// processProfile is a process's part of the profile. If the agent panics over it, the process has
// none.
func (a *Agent) processProfile(
	w *fold.Window, p *fold.Process, parts []source.Part, counts *profile.Counts,
) *profile.Process {
	var named *profile.Process
	var samples uint64
	threads := w.Processes[p]
	for _, t := range threads {
		for i := range t.Trees {
			samples += t.Trees[i].Total()
		}
	}
	err := a.services.Resolver.Attempt(guest.StageWindow, p.Process, func() {
		sums := *counts
		sums.Truncated = maps.Clone(counts.Truncated)
		out := p.Profile(threads, &sums)
		if note := p.MissingFrames(w.Began); note != "" {
			out.Notes = append(out.Notes, note)
		}
		p.AddVersions(threads, w.Began, out)
		out.Contexts = a.owner.Contexts(p, threads, a.opt.Contexts, a.opt.CheckContexts)
		a.owner.Do(func(s *fold.State) { s.Empty(threads) })
		out.Course = w.CourseOf(p)
		sampled := out.Threads
		if a.opt.NoTime {
			out.Threads, out.Course = nil, nil
		}
		for _, part := range parts {
			if part.Process != nil {
				part.Process(p, out)
			}
		}
		if a.opt.Events.Wall() {
			a.addWall(out, sampled)
		}
		out.Extents = profile.AddExtents(out.Extents, wall.Extents(out.Events)...)
		named, *counts = out, sums
	})
	if err != nil {
		counts.Folded -= samples
		counts.Discarded[profile.Failed] += samples
		named = fold.ProfileOf(p.Process)
	}
	return named
}

// addWall adds the wall time of a process, given the samples of its CPU time. What is not wanted
// otherwise is left out.
func (a *Agent) addWall(p *profile.Process, sampled []*profile.Thread) {
	kept := p.Threads
	p.Threads = sampled
	united := wall.Events(p, a.period())
	p.Threads = kept
	if !a.opt.Events.Kinds[profile.OffCPU] {
		p.Events = slices.DeleteFunc(p.Events, func(e *profile.Events) bool { return e.Kind == profile.OffCPU })
	}
	p.Events = append(p.Events, united)
}

// drop forgets a window, whether it was closed or not, and the names that only it needed.
func (a *Agent) drop(w *Window) { a.owner.Release(w.open) }
