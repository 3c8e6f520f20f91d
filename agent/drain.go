package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/ring"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// drainInterval is how often the ring is emptied unless it fills up first. Waking for every sample would make the
// agent cost ten times as much.
const drainInterval = 100 * time.Millisecond

// drain copies records from the ring to where they belong until ctx ends. It never reads a target: what a sample
// needs from one goes to the naming workers.
func (a *Agent) drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { a.ring.Flush() })
	defer stop()
	a.ring.SetDeadline(time.Now().Add(drainInterval))
	for {
		last := ctx.Err() != nil // nothing ticks any more: what is in the ring now is all there will be
		record, err := a.ring.Next()
		switch {
		case err == nil:
			if a.receive(record) && a.ring.Empty() {
				a.submitDirty()
			}
		case errors.Is(err, os.ErrDeadlineExceeded): // looked at when the ring is empty
			a.ring.SetDeadline(time.Now().Add(drainInterval))
			a.submitDirty()
		case errors.Is(err, ring.ErrFlushed):
			a.submitDirty()
			a.flushed()
			if last {
				return nil
			}
			if ctx.Err() != nil { // this flush began before the end
				a.ring.Flush()
			}
		default:
			return fmt.Errorf("read event stream: %w", err)
		}
	}
}

// receive folds one record. It tells whether the naming workers are to hear of it at once. A record over which the agent
// panics is discarded.
func (a *Agent) receive(raw []byte) (urgent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := proc.Catch(func() error {
		a.handle(raw)
		return nil
	})
	if err != nil {
		a.recordFailed(raw, err)
	}
	return a.urgent
}

// A handler takes the records of one kind. Both functions are called with mu held.
type handler struct {
	// handle folds a record. It is false if this agent has nothing that such a record belongs to.
	handle func(*Agent, []byte) bool
	// failed accounts for a record over which handle panicked; nil if records of the kind are only counted as received.
	failed func(*Agent)
}

// handlers has a row for each kind of record that BPF programs emit.
var handlers = [...]handler{
	bpf.EventSample:      {(*Agent).handleSample, (*Agent).sampleFailed},
	bpf.EventCodeLoad:    {(*Agent).handleCodeLoad, nil},
	bpf.EventProcessExec: {(*Agent).handleExec, nil},
	bpf.EventProcessExit: {(*Agent).handleExit, nil},
	bpf.EventCall:        {(*Agent).handleCall, (*Agent).callFailed},
	bpf.EventNamedCall:   {(*Agent).handleNamedCall, (*Agent).callFailed},
	bpf.EventNewMethod:   {(*Agent).handleNewMethod, nil},
	bpf.EventObserved:    {(*Agent).handleObservation, (*Agent).observationFailed},
}

// handlerOf returns the handler of a record, which is empty if there is none.
func handlerOf(raw []byte) (h handler) {
	if kind := int(bpf.Kind(raw)); kind < len(handlers) {
		h = handlers[kind]
	}
	return h
}

// handle folds one record; mu is held.
func (a *Agent) handle(raw []byte) {
	if h := handlerOf(raw); h.handle == nil || !h.handle(a, raw) {
		a.received.unknown++
	}
}

// recordFailed accounts for a record over which the agent panicked; mu is held.
func (a *Agent) recordFailed(raw []byte, err error) {
	if h := handlerOf(raw); h.failed != nil {
		h.failed(a)
	}
	if pid, ok := bpf.PID(raw); ok && a.table[pid] != nil {
		a.resolver.Failed(target.StageRecord, a.table[pid].Process, err)
	} else if a.resolver.CountFailure(target.StageRecord) == 1 { // of no process: one is logged
		a.resolver.LogFailure(target.StageRecord, pid, err)
	}
}

func (a *Agent) handleSample(raw []byte) bool {
	a.received.samples++
	if err := bpf.DecodeSample(raw, &a.sample); err != nil {
		a.discard(profile.Malformed)
		return true
	}
	a.onSample(&a.sample)
	return true
}

func (a *Agent) sampleFailed() {
	a.discarded[profile.Failed] += a.received.samples - a.received.folded - profile.Sum(a.discarded)
	for w := range a.windows { // those that had counted it
		w.discarded[profile.Failed] += w.received - w.folded - profile.Sum(w.discarded)
	}
}

func (a *Agent) handleCodeLoad(raw []byte) bool {
	a.received.events++
	var l bpf.CodeLoad
	if err := bpf.DecodeCodeLoad(raw, &l); err == nil {
		a.onCodeLoad(&l)
	}
	return true
}

func (a *Agent) handleExec(raw []byte) bool {
	a.received.events++
	if e, err := bpf.DecodeProcess(raw); err == nil {
		a.onExec(&e.Header)
	}
	return true
}

func (a *Agent) handleExit(raw []byte) bool {
	a.received.events++
	if e, err := bpf.DecodeProcess(raw); err == nil {
		a.onExit(&e.Header)
	}
	return true
}

func (a *Agent) onSample(s *bpf.Sample) {
	now := s.Time
	a.oldest = min(a.oldest, now)
	p := a.process(s.Header)
	a.resolver.Reach(target.StageRecord, p.PID)
	p.Samples++
	p.ClassEpoch = s.ClassEpoch
	code := p.Code.Load()
	t := a.joiner.Join(p, s, code)
	unknown := p.Meet(s)
	if code.Due(time.Duration(now)) || p.Due(now) || unknown {
		a.dirty[p] = struct{}{}
	}
	if len(t.Stack) == 0 {
		a.discard(profile.EmptyStack)
		return
	}
	if a.sources.any(source.needTop) {
		p.Top.Add(t.Stack, 1)
		p.Hot.Add(t.Stack, code)
	}
	wanted := false
	for w := range a.windows {
		if !w.wants(s.Pid) {
			w.filtered++
			continue
		}
		wanted = true
		w.received++
		if w.add(p, t) && p.Want(t.Stack, s.ClassEpoch, &a.nameCount) {
			a.dirty[p] = struct{}{}
		}
	}
	if !wanted {
		a.discarded[profile.NoWindow]++
		return
	}
	a.received.folded++
}

func (a *Agent) onCodeLoad(l *bpf.CodeLoad) {
	a.codeLoads++
	p := a.process(l.Header)
	p.Loaded(vmruntime.CodeLoad{
		Begin: l.Begin, Size: l.Size, Version: l.CompileID & 0xfffffff, Class: string(l.Class), Name: string(l.Name), Signature: string(l.Signature),
	})
	a.dirty[p] = struct{}{}
}

// onExec: the process runs another program; whatever was known of it speaks of the old one. The new one is looked at
// when it is first sampled: most live too shortly for that.
func (a *Agent) onExec(h *bpf.Header) {
	if p := a.table[int(h.Pid)]; p != nil && !(p.Precise && p.ID.Start == h.Start && p.ID.Exec == h.Exec) {
		a.retire(p)
	}
}

func (a *Agent) onExit(h *bpf.Header) {
	if p := a.table[int(h.Pid)]; p != nil && a.sameProcess(p, h) {
		a.retire(p)
	}
}

// process returns the process that an event speaks of; mu is held.
func (a *Agent) process(h *bpf.Header) *fold.Process {
	p := a.table[int(h.Pid)]
	if p != nil && a.sameProcess(p, h) {
		return p
	}
	if p != nil {
		a.retire(p)
	}
	p = fold.NewProcess(proc.Identity{PID: int(h.Pid), Start: h.Start, Exec: h.Exec}, true)
	a.table[int(h.Pid)] = p
	return p
}

// sameProcess compares identities. A process that was found in /proc takes over what the kernel side knows better.
func (a *Agent) sameProcess(p *fold.Process, h *bpf.Header) bool {
	if !p.Precise {
		if p.ID.Ticks() != (proc.Identity{Start: h.Start}).Ticks() {
			return false
		}
		p.ID.Start, p.ID.Exec, p.Precise = h.Start, h.Exec, true
		return true
	}
	return p.ID.Start == h.Start && p.ID.Exec == h.Exec
}

// retire marks a process as gone. It leaves the table with the next submitDirty: the kernel works for a process, and
// ticks in it, for a moment after it said that it ended.
func (a *Agent) retire(p *fold.Process) {
	a.sources.flush() // bursts of it that nobody will end
	p.Exited.Store(true)
	a.dirty[p] = struct{}{}
}

// discard drops a sample that no window can hold, whichever processes it is of.
func (a *Agent) discard(why string) {
	a.discarded[why]++
	for w := range a.windows {
		w.received++
		w.discarded[why]++
	}
}

// submitDirty hands the processes that got work since the last time to the naming workers.
func (a *Agent) submitDirty() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.urgent = false
	if a.oldest != noTime {
		a.lag = monotonic() - time.Duration(a.oldest)
		a.oldest = noTime
	}
	for p := range a.dirty {
		if p.Exited.Load() {
			if a.table[p.PID] == p {
				delete(a.table, p.PID)
			}
			if p.Holders == 0 {
				a.trim(p)
			}
		}
		a.resolver.Submit(p.Process)
	}
	clear(a.dirty)
}

// flush returns when every record that was in the ring at the call has been handled.
func (a *Agent) flush(ctx context.Context) error {
	done := make(chan struct{})
	a.mu.Lock()
	a.waiting = append(a.waiting, done)
	err := a.ring.Flush()
	a.mu.Unlock()
	if err != nil {
		return fmt.Errorf("flush event stream: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-a.drained:
		return nil // the drainer has ended, and emptied the ring before
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flushed lets those go on who wait for a flush, unless another one has begun: it may be theirs.
func (a *Agent) flushed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ring.Flushing() {
		return
	}
	for _, c := range a.waiting {
		close(c)
	}
	a.waiting = nil
}
