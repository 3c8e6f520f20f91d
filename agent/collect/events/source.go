// Package events is the source of events of processes, such as allocations, lock waits and
// safepoint pauses, of the kernel and of the CPU. A Source interprets the observations of its
// probes, computes the weight of each, and folds them into the open windows.
package events

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options say which events are recorded.
type Options = probes.Options

// A Source is the source of events of probes, of the kernel and of the CPU. It folds the
// observations of its Probes.
type Source struct {
	source.Passive
	*probes.Probes
	services *source.Services
	faults   faultQueue
	waits    *waits     // nil if off-CPU time is not recorded
	locks    *lockWaits // nil if waits for locks are not recorded
	totals   *totals    // nil unless allocations are recorded
	complete []Complete

	surveying sync.WaitGroup
	endSurvey context.CancelFunc // nil if recording did not start, or locks are not recorded
	stopped   atomic.Int64       // when recording ended, ns of CLOCK_MONOTONIC; 0 if it has not

	// Only functions that have the State use these.
	received    received
	holders     lockHolders
	virtuals    virtuals
	surveys     surveys
	seeded      map[*guest.Process]*firstLook // first looks at the virtual threads of processes
	apart       apartThreads                  // replaced, not changed
	shownCost   time.Duration                 // the highest in Stats
	observation bpf.Observation               // scratch
	stack       []guest.RawFrame              // scratch
}

// A Complete sets values of p's events that are known only when a window closes. It returns a note
// for readers, or "".
type Complete func(w *fold.Window, p *fold.Process) (note string)

// Open loads the programs of probes, and opens events that need no library. Nothing is attached
// before a library is found.
func Open(services *source.Services, opt Options) (*Source, error) {
	if opt.Budget == 0 {
		opt.Budget = budget.DefaultShare
	}
	e := &Source{services: services, received: received{discarded: noEventDiscards()}, surveys: surveys{},
		seeded: map[*guest.Process]*firstLook{}}
	if opt.Kinds[profile.Allocations] {
		e.totals = &totals{services: services, vms: map[weak.Pointer[guest.Process]]*countingVM{},
			following: map[*guest.Process][]weak.Pointer[vmReading]{}, left: map[*guest.Process]leftThreads{}}
	}
	var err error
	e.Probes, err = probes.New(probes.Config{
		Log: services.Log, Resolver: services.Resolver, Objects: services.Objects, Attaching: services.Libraries,
		Root: services.Root, Filter: services.Filter, GuestTimes: e.guestTimes,
		Flush: services.Flush, Refusal: services.Refusal,
	}, opt)
	if err != nil {
		return nil, err
	}
	if e.waits, err = newWaits(services, &opt); err != nil {
		return nil, errors.Join(err, e.Probes.Close())
	}
	if e.locks, err = newLockWaits(services, &opt, e.waits); err != nil {
		return nil, errors.Join(err, e.waits.close(), e.Probes.Close())
	}
	if e.locks != nil {
		e.OnTick(e.seed)
	}
	return e, nil
}

// CompleteWith registers c, which is called for each process of a closed window, before its events
// are added to the profile.
func (e *Source) CompleteWith(c Complete) { e.complete = append(e.complete, c) }

// guestTimes reads the CPU times of processes that are attached and alive, by the serials of their
// attachments.
func (e *Source) guestTimes() budget.Times {
	guests := map[uint32]*fold.Process{}
	e.services.Owner.Do(func(s *fold.State) {
		for _, p := range s.Table {
			if serial := p.Attachment.Load(); serial != 0 && !p.Exited.Load() {
				guests[serial] = p
			}
		}
	})
	times := make(budget.Times)
	for serial, p := range guests { // one system call each: not while holding the State
		if used, ok := proc.CPUTime(p.PID); ok && !p.Exited.Load() {
			times[serial] = used
		}
	}
	return times
}

func (e *Source) Start(ctx context.Context) error {
	if e.waits != nil {
		if err := e.waits.start(e.waitsAllowed()); err != nil {
			return err
		}
	}
	if err := e.Probes.Start(ctx); err != nil {
		return err
	}
	if e.locks != nil {
		var surveys context.Context
		surveys, e.endSurvey = context.WithCancel(ctx)
		e.surveying.Go(func() { e.surveyVirtual(surveys) })
	}
	if w := e.waits; w != nil {
		ctx, w.endGovern = context.WithCancel(ctx)
		w.governing.Go(func() { e.governWaits(ctx) })
		w.governing.Go(func() { e.watchWaits(ctx) })
	}
	return nil
}

func (e *Source) Stop() error {
	if e.endSurvey != nil {
		e.endSurvey()
		e.surveying.Wait()
		e.surveyLast()
	}
	if e.locks != nil {
		rest := e.lookAtLocks(context.Background())
		e.locks.mu.Lock()
		e.locks.rest = rest
		e.locks.mu.Unlock()
	}
	e.stopped.Store(int64(proc.Monotonic()))
	if e.totals != nil {
		e.totals.end()
	}
	e.Probes.Stop()
	return e.waits.stop()
}

// Follow implements source.Chooser: the threads of processes that were chosen are followed.
func (e *Source) Follow() error { return e.waits.follow() }

// OffCPU is the kernel side of off-CPU time; nil if that is not recorded.
func (e *Source) OffCPU() *bpf.OffCPU {
	if e.waits == nil {
		return nil
	}
	return e.waits.kernel
}

func (e *Source) Close() error {
	return errors.Join(e.locks.close(e.waits), e.waits.close(), e.Probes.Close())
}

// Leave records that p has ended.
func (e *Source) Leave(p *guest.Process) {
	e.Probes.Leave(p)
	e.locks.leave(p)
	if e.totals != nil {
		e.totals.leave(p)
	}
}

// Expect makes sure that a short window contains slices of plans that are observed in slices of
// time.
func (e *Source) Expect(length time.Duration) { e.Probes.Expect(proc.Monotonic(), length) }

// KernelMaps implements source.Mapper.
func (e *Source) KernelMaps() []any {
	all := e.Maps()
	if e.waits != nil {
		all = append(all, e.waits.kernel.Maps(), e.waits.stacks.kernel.Maps())
	} else if e.locks != nil {
		all = append(all, e.locks.stacks.kernel.Maps())
	}
	return all
}

// NeedNames implements source.Namer: the stack of a thread's last wait, of one that has begun, or
// of who had a lock meanwhile, may be added to a window that ends.
func (e *Source) NeedNames(_ *fold.State, of fold.NamesOf) {
	e.waits.needNames(of.Process, of.Need)
	e.virtuals.needNames(of.Process, of.Need)
	e.surveys.needNames(of.Process, of.Need)
	e.holders.needNames(of.Process, of.Need)
}

// BeforeNames looks up the objects of page faults. It comes before the names, as objects move.
func (e *Source) BeforeNames(p *guest.Process) {
	if faults := e.faults.pending(p); len(faults) > 0 {
		e.services.Resolver.Begin(guest.StageObjects, p)
		e.lookUpFaults(p, faults)
	}
}

// Attached implements guest.Follower.
func (e *Source) Attached(p *guest.Process, g *guest.VM, m *proc.Mapping) {
	e.AttachedVM(p, m)
	if e.totals != nil {
		e.totals.attached(p, g, !e.FollowsEnds(p))
	}
}

// LeftAlone folds page faults without their objects.
func (e *Source) LeftAlone(p *guest.Process) { e.foldFaults(p, e.faults.pending(p)) }

// A snapshot is the counts of events since the agent started.
type snapshot struct {
	received
	allocated classCounts // nil unless objects are counted
	totals    map[*guest.Process]*vmReading
	covered   map[*fold.Coverage]fold.CoverageSums
	virtual   virtualCounts
}

// Count implements source.Counter.
func (e *Source) Count() func(*fold.State) any {
	var s snapshot
	if e.Options.ExactAllocations { // a BPF map of many entries
		var err error
		if s.allocated, err = e.classCounts(); err != nil {
			e.services.Log.Error("cannot read how many objects were allocated", "err", err)
		}
	}
	if e.Options.Kinds[profile.Locks] {
		s.virtual = e.CountVirtual()
	}
	complete := func(*fold.State) map[*guest.Process]*vmReading { return nil }
	if e.totals != nil {
		complete = e.totals.take()
	}
	return func(state *fold.State) any {
		s.totals = complete(state)
		s.received, s.covered = e.received.clone(), e.Covers.Sums(proc.Monotonic())
		return s
	}
}

// snapshotIn returns the snapshot of events from one of all sources; the zero value if there is none.
func (e *Source) snapshotIn(s *source.Snapshot) snapshot {
	own, _ := s.BySource[e].(snapshot)
	return own
}

// Report implements source.Reporter.
func (e *Source) Report(c *bpf.Counts, s *profile.Stats) {
	var counts profile.EventCounts
	e.services.Owner.Do(func(*fold.State) {
		counts = eventCountsSince(&bpf.Counts{}, c, received{}, e.received.clone(), e.TrapTime())
		// The cost of a hit may be measured only after the first ones were counted with an
		// estimate; a counter must not decrease.
		e.shownCost = max(e.shownCost, counts.Cost)
		counts.Cost = e.shownCost
	})
	s.Events = &profile.EventStats{EventCounts: counts}
	s.Events.Wanted, s.Events.Observed = e.Covers.Times(proc.Monotonic())
	for kind, on := range e.Options.Kinds {
		if on {
			s.Events.Kinds = append(s.Events.Kinds, profile.EventKind(kind))
		}
	}
}

// Fill implements source.Filler.
func (e *Source) Fill(ctx context.Context, w *source.Closed, p *profile.Profile) source.Part {
	before, after := e.snapshotIn(&w.Before), e.snapshotIn(&w.After)
	p.EventCounts = eventCountsSince(&w.Before.Kernel, &w.After.Kernel, before.received, after.received, e.TrapTime())
	e.countObjects(ctx, w, before.allocated, after.allocated, p)
	var totals map[*guest.Process]*counted
	if e.totals != nil {
		totals = e.totals.between(ctx, w, before.totals, after.totals)
	}
	covered := fold.Covered(before.covered, after.covered, w.Began, w.Ended, &p.EventCounts)
	p.Comments = append(p.Comments, covered.Notes(maps.Values(w.Window.Events))...)
	p.Comments = append(p.Comments, e.StrangeNotes(w.Began, w.Ended)...)
	surveyed := fold.Get(e.services.Owner,
		func(*fold.State) map[*guest.Process]surveyedPart { return e.surveyedParts() })
	apart := fold.Get(e.services.Owner, func(*fold.State) apartThreads { return e.apart })
	return source.Part{Process: func(of *fold.Process, out *profile.Process) {
		e.addNamed(w.Window, of, out, &covered, totals[of.Process], after.virtual.note(of.Process, before.virtual))
		out.Extents = profile.AddExtents(out.Extents, e.lockExtent(w.Window, of, out.Events, &covered)...)
		out.Extents = profile.AddExtents(out.Extents, e.virtualExtents(w.Window, of, apart, surveyed[of.Process],
			before.virtual, after.virtual)...)
		out.Extents = profile.AddExtents(out.Extents, covered.Extents(of.Process, out.Extents)...)
	}}
}

// addNamed adds the events of p in a closed window to its part of a profile; c is what its VM
// counted itself, and virtual a note on its locks, or "".
func (e *Source) addNamed(
	w *fold.Window, p *fold.Process, out *profile.Process, covered *fold.CoveredParts, c *counted, virtual string,
) {
	s := w.Events[p]
	var allocated *fold.Allocated
	if c != nil {
		if allocated = c.Allocated; allocated != nil && allocated.Total() > 0 {
			if s == nil {
				s = &fold.EventSet{}
			}
			s.ByKind(profile.Allocations) // though nothing was observed
		}
		if note := c.note(p.Process); note != "" {
			out.Notes = append(out.Notes, note)
		}
	}
	if s == nil {
		return
	}
	var notes []string
	if virtual != "" {
		notes = append(notes, virtual)
	}
	for _, complete := range e.complete {
		if note := complete(w, p); note != "" {
			notes = append(notes, note)
		}
	}
	s.NameWakers()
	names := p.Names()
	defer names.Close()
	all, extents := s.Profile(names, p.Noticed, covered, allocated)
	covered.AddLate(profile.Allocations, p.Process, extents)
	out.Extents = profile.AddExtents(out.Extents, extents...)
	waits := e.waits
	for _, e := range all {
		switch e.Kind {
		case profile.Locks: // Their values are known late.
			e.Basis = append(e.Basis, notes...)
		case profile.Barriers:
			e.Basis = append(e.Basis, barrierBasis)
		case profile.Exceptions:
			e.Basis = append(e.Basis, exceptionBasis)
		case profile.OffCPU:
			for _, note := range [...]string{waits.rate.note(w.Began, w.Ended), waits.share.note(w.Began, w.Ended)} {
				if note != "" {
					e.Basis = append(e.Basis, note)
				}
			}
			e.Lanes = w.Lanes(p)
		}
	}
	out.Events = all
}

// eventCountsSince returns the counts of events between two readings of counters; trap is the time
// that a hit takes. Events in flight at either edge are in Attempted but not in Delivered, or vice
// versa; the identities hold if the agent was stopped and flushed first.
func eventCountsSince(
	kernelBefore, kernelAfter *bpf.Counts, before, after received, trap time.Duration,
) profile.EventCounts {
	d := func(c bpf.Counter) uint64 { return kernelAfter[c] - kernelBefore[c] }
	return profile.EventCounts{
		Attempted: d(bpf.ObservationsAttempted),
		Delivered: after.received - before.received,
		Dropped: map[string]uint64{
			"ring_full":  d(bpf.ObservationsDroppedRingFull),
			"busy":       d(bpf.ObservationsDroppedBusy),
			"table_full": d(bpf.ObservationsDroppedTableFull),
		},
		Folded:     after.folded - before.folded,
		Discarded:  profile.Difference(before.discarded, after.discarded),
		Hits:       d(bpf.ProbeHits),
		Unattached: d(bpf.HitsUnattached),
		Waits:      d(bpf.WaitsSeen) + d(bpf.WaitsSkipped), WaitsThinned: d(bpf.WaitsThinned) + d(bpf.WaitsSkipped),
		WaitsRefused: d(bpf.WaitsRefused),
		Wakers:       d(bpf.WakersDrawn), WakersLost: d(bpf.WakersLost),
		WaitTime: time.Duration(d(bpf.NsWaitsDrawn)), WaitTimeLost: time.Duration(d(bpf.NsWaitsLost)),
		Cost: time.Duration(d(bpf.NsProbes)) + time.Duration(d(bpf.ProbeHits))*trap +
			time.Duration(d(bpf.WaitsSeen))*switchCost +
			time.Duration(d(bpf.WaitsSkipped))*skipCost + time.Duration(d(bpf.WakingsSeen))*wakingCost,
	}
}
