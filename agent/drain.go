package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/intern"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// The ring is emptied at this interval unless it fills up first: at the shortest one while processes
// start, and at longer ones the longer none has. Waking for every sample would make the agent cost
// ten times as much. The first program that is executed after a while wakes the drainer.
//
// Code of a VM may be unloaded soon after it was sampled. So the longest interval is for machines
// on which no VM runs.
const (
	drainInterval = 100 * time.Millisecond
	guestInterval = 250 * time.Millisecond
	calmInterval  = time.Second
	// firstInterval is the first one. It doubles until it is drainInterval, so that frames have
	// names soon.
	firstInterval = 20 * time.Millisecond
)

// drain copies records from the ring to where they belong until ctx ends. It never reads a target:
// what a sample needs from one goes to the naming workers.
func (a *Agent) drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { a.ring.Flush() })
	defer stop()
	soon := firstInterval
	a.ring.SetDeadline(time.Now().Add(soon))
	for {
		last := ctx.Err() != nil // nothing ticks any more: what is in the ring now is all there will be
		record, err := a.ring.Next()
		switch {
		case err == nil:
			if a.receive(record) && a.ring.Empty() {
				a.submitDue()
			}
			if a.executed { // its process must be looked at while it is there
				a.executed = false
				a.ring.Hasten(time.Now().Add(drainInterval))
			}
		case errors.Is(err, os.ErrDeadlineExceeded): // looked at when the ring is empty
			pause := a.submitDue()
			if soon *= 2; soon < drainInterval {
				pause = soon
			} else {
				soon = drainInterval
			}
			a.ring.SetDeadline(time.Now().Add(proc.InStep(pause)))
		case errors.Is(err, ring.ErrFlushed):
			a.owner.Do((*fold.State).Submit)
			a.flushes.done(a.ring)
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

// submitDue hands processes with new work to workers, and has unwind tables made that walks lacked. It
// returns how long the ring may be left alone.
func (a *Agent) submitDue() (pause time.Duration) {
	a.tables.Look()
	a.owner.Do(func(s *fold.State) {
		s.SubmitDue()
		pause = s.Pause()
	})
	longest := calmInterval
	if a.Guests() > 0 {
		longest = guestInterval
	}
	return min(max(pause, drainInterval), longest)
}

// receive folds one record. It reports whether workers must get it at once. A record over which the
// agent panics is discarded.
func (a *Agent) receive(raw []byte) (urgent bool) {
	err := a.owner.Try(func(s *fold.State) {
		a.handle(s, raw)
		urgent = s.Urgent()
	})
	if err != nil {
		a.owner.Do(func(s *fold.State) {
			a.recordFailed(s, raw, err)
			urgent = s.Urgent()
		})
	}
	return urgent
}

// A handler takes the records of one kind. It is empty if this agent has nothing that such a record
// belongs to.
type handler struct {
	handle func(*fold.State, []byte) // folds a record
	// failed accounts for a record over which handle panicked; nil if records of the kind are only
	// counted as received.
	failed func(*fold.State)
}

// handlers has a row for each kind of record that BPF programs emit; sources add theirs when they
// are opened.
type handlers [bpf.EventVMThreadEnd + 1]handler

// handlerOf returns the handler of a record.
func (a *Agent) handlerOf(raw []byte) (h handler) {
	if kind := int(bpf.Kind(raw)); kind < len(a.handlers) {
		h = a.handlers[kind]
	}
	return h
}

// handle folds one record.
func (a *Agent) handle(s *fold.State, raw []byte) {
	if h := a.handlerOf(raw); h.handle != nil {
		h.handle(s, raw)
	} else {
		s.Unknown++
	}
}

// recordFailed accounts for a record over which the agent panicked.
func (a *Agent) recordFailed(s *fold.State, raw []byte, err error) {
	if h := a.handlerOf(raw); h.failed != nil {
		h.failed(s)
	}
	if pid, ok := bpf.PID(raw); ok && s.Table[pid] != nil {
		a.services.Resolver.Failed(guest.StageRecord, s.Table[pid].Process, err)
	} else if a.services.Resolver.CountFailure(guest.StageRecord) == 1 { // The record is of no process: one is logged.
		a.services.Resolver.LogFailure(guest.StageRecord, pid, err)
	}
}

func (a *Agent) handleSample(s *fold.State, raw []byte) { a.take(s, raw, bpf.DecodeSample) }

func (a *Agent) handleFull(s *fold.State, raw []byte) { a.take(s, raw, a.stacks.Full) }

func (a *Agent) handleShort(s *fold.State, raw []byte) { a.take(s, raw, a.stacks.Short) }

// take folds a sample.
func (a *Agent) take(s *fold.State, raw []byte, decode func([]byte, *bpf.Sample) error) {
	s.Samples++
	switch err := decode(raw, &a.sample); {
	case errors.Is(err, intern.ErrUnknown):
		s.Discard(profile.UnknownStack)
		return
	case err != nil:
		s.Discard(profile.Malformed)
		return
	}
	p := s.Process(a.sample.Header)
	a.services.Resolver.Reach(guest.StageRecord, p.PID)
	s.Take(p, &a.sample)
}

func handleCodeLoad(s *fold.State, raw []byte) {
	s.Events++
	var l bpf.CodeLoad
	if err := bpf.DecodeCodeLoad(raw, &l); err == nil {
		s.Loaded(&l)
	}
}

func (a *Agent) handleExec(s *fold.State, raw []byte) {
	s.Events++
	if e, err := bpf.DecodeProcess(raw); err == nil {
		s.Executed(e)
		a.executed = true
		if a.opt.tickless() {
			a.looks.executed(monotonic(), int(e.Header.Pid))
		}
	}
}

func handleExit(s *fold.State, raw []byte) {
	s.Events++
	if e, err := bpf.DecodeProcess(raw); err == nil {
		s.Ended(&e.Header)
	}
}

// flushes are those of the ring that somebody waits for. The zero value has none.
type flushes struct {
	mu      sync.Mutex
	waiting []chan struct{}
}

// begin has a ring flushed. The channel that it returns is closed when that is done.
func (f *flushes) begin(ring *ring.Reader) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	done := make(chan struct{})
	f.waiting = append(f.waiting, done)
	return done, ring.Flush()
}

// done lets those go on who wait, unless another flush has begun: it may be theirs.
func (f *flushes) done(ring *ring.Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ring.Flushing() {
		return
	}
	for _, c := range f.waiting {
		close(c)
	}
	f.waiting = nil
}

// flush returns when every record that was in the ring at the call has been handled.
func (a *Agent) flush(ctx context.Context) error {
	done, err := a.flushes.begin(a.ring)
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
