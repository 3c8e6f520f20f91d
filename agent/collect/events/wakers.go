package events

import (
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// pendingWakers are those who ended waits whose own records are yet to come: their threads have
// been woken and have no CPU. The zero value is ready to use. Only functions that have the State
// use it.
type pendingWakers struct {
	of     map[uint32]*pendingWaker // by the thread that waited: the last one
	frames int
}

// A pendingWaker ended the wait of a thread that left its CPU then.
type pendingWaker struct {
	fold.Waker
	since uint64
	seen  bool // scratch
}

// maxPendingFrames bounds the frames of pending wakers: 24 bytes each. Wakers beyond it are not
// known.
const maxPendingFrames = 1 << 18

// add adds a waker, whose stack is copied.
func (w *pendingWakers) add(tid uint32, since uint64, by fold.Waker) {
	w.remove(tid)
	if w.frames+len(by.Stack) > maxPendingFrames || len(w.of) >= bpf.MaxFollowedThreads {
		return
	}
	if w.of == nil {
		w.of = map[uint32]*pendingWaker{}
	}
	by.Stack = slices.Clone(by.Stack)
	w.frames += len(by.Stack)
	w.of[tid] = &pendingWaker{Waker: by, since: since}
}

func (w *pendingWakers) remove(tid uint32) {
	if p := w.of[tid]; p != nil {
		w.frames -= len(p.Stack)
		delete(w.of, tid)
	}
}

// take removes the waker of a thread that left its CPU then, and returns it; nil if there is none.
func (w *pendingWakers) take(tid uint32, since uint64) *fold.Waker {
	p := w.of[tid]
	w.remove(tid)
	if p == nil || p.since != since {
		return nil
	}
	return &p.Waker
}

// see notes that a thread is followed.
func (w *pendingWakers) see(tid uint32) {
	if p := w.of[tid]; p != nil {
		p.seen = true
	}
}

// forget forgets the wakers of threads that were not seen, of waits from before that time: they
// have ended.
func (w *pendingWakers) forget(before time.Duration) {
	for tid, p := range w.of {
		if !p.seen && time.Duration(p.since) < before {
			w.remove(tid)
		}
		p.seen = false
	}
}

// needNames calls need for the frames of wakers of p.
func (w *pendingWakers) needNames(p *fold.Process, need func(guest.RawFrame)) {
	for _, by := range w.of {
		if by.Process == p {
			for _, f := range by.Stack {
				need(f)
			}
		}
	}
}

// A kernelCode knows what the kernel's functions say of wakers, by addresses in them.
type kernelCode struct {
	function func(pc uint64) string
	known    map[uint64]cause.KernelFrame
}

// maxKernelCode bounds the addresses that are remembered.
const maxKernelCode = 1 << 14

func (k *kernelCode) frame(pc uint64) cause.KernelFrame {
	f, ok := k.known[pc]
	if !ok {
		if len(k.known) >= maxKernelCode || k.known == nil {
			k.known = map[uint64]cause.KernelFrame{}
		}
		f = cause.KernelFrameOf(k.function(pc))
		k.known[pc] = f
	}
	return f
}

// handleWaker keeps the record of who ended a wait until that of the wait comes. It returns false
// if it is malformed.
func (e *Source) handleWaker(s *fold.State, o *bpf.Observation) (ok bool) {
	w, seen := e.waits, o.Seen
	if w == nil || !w.wakers || int(seen.Count) <= bpf.WakerSince {
		return false
	}
	tid, since := uint32(seen.Values[bpf.WakerTID]), seen.Values[bpf.WakerSince]
	kernel, inner, known := cause.Waker(seen.Flags&bpf.WakerKernel != 0, func(yield func(cause.KernelFrame) bool) {
		for _, pc := range o.Kernel {
			if !yield(w.code.frame(pc)) {
				return
			}
		}
	})
	switch {
	case !known:
		return true
	case kernel != "":
		w.pending.add(tid, since, fold.Waker{Kernel: kernel})
		return true
	}
	by := fold.Waker{PID: o.Pid, TID: o.Tid, Epoch: o.ClassEpoch, Comm: symbol.CommName(o.Text),
		Thread: symbol.CommName(o.Comm)}
	attachment := uint32(0)
	if seen.Flags&bpf.WakerChosen != 0 {
		p := s.Process(o.Header)
		s.Unloaded(p, o.ClassEpoch)
		if p.ObserveThread(&o.Sample) {
			s.Dirty[p] = struct{}{}
		}
		by.Process, by.Thread, attachment = p, p.NameOf(o.Tid, o.Comm), p.Attachment.Load()
	}
	e.stack = guest.AppendStack(e.stack[:0], &o.Sample, attachment)
	by.Stack = e.stack[inner:]
	w.pending.add(tid, since, by)
	return true
}
