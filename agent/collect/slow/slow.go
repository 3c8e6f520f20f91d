// Package slow records the slowest invocations of a method of JVMs, and what their threads did in
// them.
//
//	s, err := slow.Open(ctx, services, slow.Options{PIDs: pids, Method: method, Share: 0.01}, events.OffCPU())
//
// It is a source next to those of CPU time and off-CPU time, whose records it joins with the
// invocations: package fold.
package slow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options say what is followed.
type Options struct {
	PIDs   []int // JVMs, up to hotspot.MaxProcesses
	Method hotspot.Method
	Share  float64 // part of each process's CPU time that breakpoints may take
}

// A Source is the source of invocations.
type Source struct {
	source.Passive
	services *source.Services
	kernel   *bpf.Invocations
	follower *hotspot.Follower

	mu      sync.Mutex
	stopped time.Duration // CLOCK_MONOTONIC: when recording ended; 0: it has not
	started counts        // counts of what was seen before
	least   time.Duration
	dropped int   // records that cannot be decoded
	last    *look // when the last window ended that another one follows; nil if none did
	warned  sync.Once
}

// counts are what was seen in each process.
type counts map[int]bpf.InvocationCounts

// A look at which threads are in invocations.
type look struct {
	at   time.Duration // CLOCK_MONOTONIC: before it
	list []open
}

// An open invocation is one that has not ended.
type open struct {
	tid uint32
	bpf.OpenInvocation
}

// Open begins to follow the method. Waits are those of events.Options.Slow. The error says which
// process cannot be followed, or why none can.
func Open(ctx context.Context, services *source.Services, opt Options, waits *bpf.OffCPU) (*Source, error) {
	kernel, err := services.Objects.LoadInvocations(waits)
	if err != nil {
		return nil, services.Refusal(err)
	}
	s := &Source{services: services, kernel: kernel}
	s.follower, err = hotspot.OpenFollower(ctx, hotspot.Options{
		PIDs: opt.PIDs, Method: opt.Method, Breakpoints: services.Breakpoints, Share: opt.Share, Root: services.Root,
		Watcher: services.Watcher, Log: services.Log,
	}, kernel)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("follow calls of %s: %w", opt.Method, err), kernel.Close())
	}
	slow := fold.NewSlowCalls()
	slow.Full, slow.Code = s.setLeast, s.code
	if err := services.Owner.Do(func(state *fold.State) { state.Slow = slow }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// code is the code of the method in a process.
func (s *Source) code(p *fold.Process) *fold.SlowCode {
	code := s.follower.Code(p.PID)
	if code == nil {
		return nil
	}
	return &fold.SlowCode{Versions: code.Versions, Methods: code.Methods}
}

// setLeast has the kernel side leave out records of shorter invocations.
func (s *Source) setLeast(least time.Duration) {
	if least == s.least {
		return
	}
	s.least = least
	if err := s.kernel.Least.Set(uint64(least)); err != nil {
		s.services.Log.Warn("cannot leave out short calls", "err", err)
	}
}

// Err is why invocations are not followed any more; nil if they are.
func (s *Source) Err() error { return s.follower.Err() }

// Start begins to count calls: those until now are of no window.
func (s *Source) Start(context.Context) error {
	now := counts(s.follower.Counts())
	s.mu.Lock()
	s.started = now
	s.mu.Unlock()
	return s.services.Owner.Do(func(state *fold.State) { state.Slow.Since = proc.Monotonic() })
}

// Count implements source.Counter.
func (s *Source) Count() func(*fold.State) any {
	now := counts(s.follower.Counts())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == nil {
		now = nil
	}
	since := now.since(s.started)
	return func(*fold.State) any { return since }
}

// since is what was seen after others were counted.
func (c counts) since(before counts) counts {
	since := counts{}
	for pid, n := range c {
		n.Entered -= before[pid].Entered
		n.Nested -= before[pid].Nested
		n.Unwound -= before[pid].Unwound
		n.Refused -= before[pid].Refused
		n.Lost -= before[pid].Lost
		since[pid] = n
	}
	return since
}

// Stop notes when recording ended.
func (s *Source) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = proc.Monotonic()
	return nil
}

func (s *Source) Close() error { return errors.Join(s.follower.Close(), s.kernel.Close()) }

// KernelMaps implements source.Mapper.
func (s *Source) KernelMaps() []any { return []any{*s.kernel} }

// Handle folds the record of an invocation.
func (s *Source) Handle(state *fold.State, raw []byte) {
	state.Events++
	r, err := bpf.DecodeInvocation(raw)
	if err != nil || r.Header.Time < r.Begun {
		s.dropped++
		return
	}
	h := (*bpf.Header)(&r.Header)
	state.Received(h.Time)
	call := &fold.SlowCall{
		Process: state.Process(h), TID: h.Tid, From: time.Duration(r.Begun), To: time.Duration(h.Time), SP: r.Sp,
		Ran: time.Duration(r.Ran), RanKnown: r.Known != 0, Waited: time.Duration(r.Waited),
	}
	if r.End != bpf.InvocationReturned {
		call.End = profile.CallUnwound
	}
	state.Slow.Add(state, call)
}

// notes are sentences without numbers, so that several windows have the same.
func (c counts) notes(method string) (notes []string) {
	for _, pid := range slices.Sorted(maps.Keys(c)) {
		n := c[pid]
		if n.Unwound > 0 {
			notes = append(notes, fmt.Sprintf("process %d: the return of some calls of %s was not seen, because an "+
				"exception ended them or their code was replaced; the times shown are upper bounds", pid, method))
		}
		if n.Refused+n.Lost > 0 {
			notes = append(notes, fmt.Sprintf("process %d: some calls of %s were not recorded for lack of room", pid,
				method))
		}
	}
	return notes
}

// Finishing implements source.Finisher: invocations that have not ended when the last window does
// count up to its end.
func (s *Source) Finishing() func(*fold.State, *fold.Window) {
	now := &look{at: proc.Monotonic()}
	err := s.follower.Inside(func(tid uint32, in *bpf.OpenInvocation) { now.list = append(now.list, open{tid, *in}) })
	if err != nil {
		s.services.Log.Error("cannot read which calls have not ended", "err", err)
	}
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	return func(state *fold.State, w *fold.Window) {
		end := w.Ended
		if stopped != 0 {
			end = min(end, stopped)
		}
		for i := range now.list {
			o := &now.list[i]
			if p := state.Table[int(o.Pid)]; p != nil {
				state.Slow.Unfinished(state, w, &fold.SlowCall{
					Process: p, TID: o.tid, From: time.Duration(o.Time), To: max(end, time.Duration(o.Time)), SP: o.Sp,
				})
			}
		}
		if !w.Continued {
			return
		}
		// Windows that follow one another end one after the other, each when all records are
		// handled that there were before: what had ended at the last look has been added.
		if s.last != nil {
			state.Slow.Forget(s.last.at, s.last.inside())
		}
		if s.last = now; err != nil {
			s.last = nil
		}
	}
}

// inside is when invocations began, by thread.
func (l *look) inside() map[uint32]time.Duration {
	began := make(map[uint32]time.Duration, len(l.list))
	for i := range l.list {
		began[l.list[i].tid] = time.Duration(l.list[i].Time)
	}
	return began
}

// Fill implements source.Filler.
func (s *Source) Fill(_ context.Context, w *source.Closed, p *profile.Profile) source.Part {
	p.Followed = s.follower.Method()
	p.Comments = append(p.Comments, s.follower.Notes()...)
	if err := s.follower.Err(); err != nil {
		p.Comments = append(p.Comments, fmt.Sprintf("the slowest calls are missing from some time on: %v", err))
		s.warned.Do(func() { s.services.Log.Warn("calls are not followed any more", "err", err) })
	}
	cut := 0
	for _, call := range w.Slow {
		if call.Cut {
			cut++
		}
	}
	if cut > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%d of the slowest calls waited so often that their first waits "+
			"are not known: they are in [short waits]", cut))
	}
	if s.dropped > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%d records of calls were malformed: please report this",
			s.dropped))
	}
	before, _ := w.Before.BySource[s].(counts)
	after, _ := w.After.BySource[s].(counts)
	counts := after.since(before)
	p.Comments = append(p.Comments, counts.notes(p.Followed)...)
	zero := time.Now().Add(-proc.Monotonic())
	return source.Part{Process: func(of *fold.Process, out *profile.Process) {
		if c := counts[of.PID]; c.Entered+c.Nested > 0 {
			delete(counts, of.PID) // they are of one
			out.Calls = append(out.Calls, s.follower.Profile(c.Entered+c.Nested))
		}
		names := of.Names()
		defer names.Close()
		for _, call := range w.Slow {
			if call.Process == of {
				out.Slow = append(out.Slow, call.Profile(names, zero))
			}
		}
	}}
}
