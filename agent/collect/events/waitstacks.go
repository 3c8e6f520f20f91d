package events

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// waitStacks reads stacks of threads that have not gone on when a window ends, of one process after
// the other.
type waitStacks struct {
	services *source.Services

	mu     sync.Mutex // held while stacks are read
	kernel *bpf.Waiting
}

const (
	// leastAsked is how long a thread has waited at least if its stack is to be read when a window
	// ends.
	leastAsked = 100 * time.Millisecond
	// leastFirst is the same of a thread of which no stack is known.
	leastFirst = 10 * time.Millisecond
	// maxRounds bounds how often stacks are read when a window ends: while some are read, other
	// threads go on, and wait anew.
	maxRounds = 4
	// leastWatched is the same while a window is open: as many threads at once are read seldom in
	// vain.
	leastWatched = 500 * time.Millisecond
	// watchedEvery is the least pause between two looks at threads that wait in an open window, and
	// watchedShare how many times as long as a look it is.
	watchedEvery = time.Second
	watchedShare = 50
	// maxAskedAtOnce bounds the threads of one call: until it returns, the kernel holds about 30 KB
	// of pages for each.
	maxAskedAtOnce = 256
	// maxAskedTime bounds the reads for one window.
	maxAskedTime = 2 * time.Second
)

// An askedThread is a thread whose stack is wanted.
type askedThread struct {
	id    proc.Identity // identity of its process
	tid   uint32
	since uint64
}

// load loads the program.
func (r *waitStacks) load() (err error) {
	r.kernel, err = r.services.Objects.LoadWaiting()
	return err
}

func (r *waitStacks) close() error {
	if r.kernel == nil {
		return nil
	}
	return r.kernel.Close()
}

// read returns the records of stacks, as bpf.Waiting.Read has them, and the threads that there was
// time for until end. It sorts asked: threads that have just begun to wait are the least likely to
// go on meanwhile.
func (r *waitStacks) read(asked []askedThread, end time.Time) (records [][]byte, tried []askedThread) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(asked, func(a, b askedThread) int {
		return cmp.Or(cmp.Compare(a.id.PID, b.id.PID), cmp.Compare(b.since, a.since))
	})
	all := asked
	for len(asked) > 0 && time.Now().Before(end) {
		id, n := asked[0].id, 1
		for n < min(len(asked), maxAskedAtOnce) && asked[n].id == id {
			n++
		}
		some, err := r.readSome(id, asked[:n], end)
		asked = asked[n:]
		records = append(records, some...)
		if err != nil {
			r.services.Log.Debug("cannot read the stacks of waiting threads", "pid", id.PID, "err", err)
			for len(asked) > 0 && asked[0].id == id {
				asked = asked[1:]
			}
		}
	}
	return records, all[:len(all)-len(asked)]
}

// readSome reads stacks of threads of one process.
func (r *waitStacks) readSome(id proc.Identity, asked []askedThread, end time.Time) (records [][]byte, err error) {
	memory, err := proc.Call(context.Background(), r.services.Pool, id.PID, func() (*proc.Memory, error) {
		return proc.OpenMemory(r.services.Root, id, r.services.Pool)
	})
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	threads := make(map[uint32]uint64, len(asked))
	for _, t := range asked {
		threads[t.tid] = t.since
	}
	err = r.kernel.Read(threads, end, func(at []uint64, to []bpf.PageCopy) error { return copyPages(memory, at, to) },
		func(raw []byte) { records = append(records, bytes.Clone(raw)) })
	return records, err
}

// readVirtual calls each for virtual threads of one process, as bpf.Waiting.ReadVirtual does.
func (r *waitStacks) readVirtual(
	id proc.Identity, threads []bpf.AskedVirtual, end time.Time, each func(i int, seen bpf.SeenVirtual),
) error {
	if len(threads) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	memory, err := proc.Call(context.Background(), r.services.Pool, id.PID, func() (*proc.Memory, error) {
		return proc.OpenMemory(r.services.Root, id, r.services.Pool)
	})
	if err != nil {
		return err
	}
	defer memory.Close()
	of := bpf.Header{Start: id.Start, Pid: uint32(id.PID), Exec: id.Exec}
	return r.kernel.ReadVirtual(of, threads, end, func(at []uint64,
		to []bpf.PageCopy) error {
		return copyPages(memory, at, to)
	}, each)
}

// copyPages copies pages from those addresses, as far as they can be read.
func copyPages(memory *proc.Memory, at []uint64, to []bpf.PageCopy) error {
	ranges := make([]vmruntime.Range, 0, 2*len(at))
	for i, address := range at {
		half := len(to[i].Bytes) / 2
		ranges = append(ranges, vmruntime.Range{Addr: address, Buf: to[i].Bytes[:half]},
			vmruntime.Range{Addr: address + uint64(half), Buf: to[i].Bytes[half:]})
	}
	if err := memory.ReadBatch(ranges); err != nil {
		return err
	}
	for i := range to {
		for _, half := range ranges[2*i : 2*i+2] {
			if !half.OK {
				break
			}
			to[i].Length += uint64(len(half.Buf))
		}
	}
	return nil
}

// watchWaits reads the stacks of threads that have waited for long, until ctx ends. The record of
// such a wait comes when it ends: that may be with the process, of which nothing can be read any
// more.
func (e *Source) watchWaits(ctx context.Context) {
	for pause := watchedEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(pause, proc.InStep(pause))): // A shorter pause would cost more than it may.
		}
		began := time.Now()
		away, err := e.waits.look()
		if err != nil {
			continue // the end of a window reports that
		}
		asked := fold.Get(e.services.Owner, func(s *fold.State) []askedThread {
			return e.waits.unknown(s, away,
				leastWatched)
		})
		e.readStacks(asked, began.Add(maxAskedTime))
		pause = max(watchedEvery, watchedShare*time.Since(began))
	}
}

// readStacks reads stacks until end, and keeps them.
func (e *Source) readStacks(asked []askedThread, end time.Time) {
	records, tried := e.waits.stacks.read(asked, end)
	e.services.Owner.Do(func(s *fold.State) { e.learn(s, tried, records) })
}

// unknown returns the threads whose stacks are not known of those that were away for that long, or
// for leastFirst if no stack of theirs is. That a thread is stopped, or waits for a CPU, is known
// without.
func (w *waits) unknown(s *fold.State, away []bpf.OffCPUThread, least time.Duration) (asked []askedThread) {
	now := proc.Monotonic()
	for i := range away {
		a := &away[i]
		blocked := a.State == uint32(bpf.OffCPUBlocked) || a.State == uint32(bpf.OffCPUDisk)
		last, long := w.last[a.Tid], least
		if last == nil {
			long = leastFirst
		}
		if !blocked || a.Since == 0 || time.Duration(a.Since)+long > now || last.at(s.Table[int(a.Pid)], a) ||
			w.vain[a.Tid] == a.Since {
			continue
		}
		asked = append(asked, askedThread{proc.Identity{PID: int(a.Pid), Start: a.Start, Exec: a.Exec}, a.Tid, a.Since})
	}
	return asked
}

// at reports whether the last wait was at the place where the thread waits now.
func (l *lastWait) at(p *fold.Process, a *bpf.OffCPUThread) bool {
	return l != nil && l.process == p && l.pc == a.Pc && l.sp == a.Sp
}

// learn keeps stacks that were read of waiting threads. Of those that were tried, the others are
// not asked for again while the thread waits.
func (e *Source) learn(s *fold.State, tried []askedThread, records [][]byte) {
	for _, t := range tried {
		e.waits.vain[t.tid] = t.since
	}
	var o bpf.Observation
	for _, raw := range records {
		if err := bpf.DecodeObservation(raw, &o); err != nil {
			e.services.Log.Error("the stack of a waiting thread is malformed", "err", err)
			continue
		}
		delete(e.waits.vain, o.Tid)
		if s.Table[int(o.Pid)] != nil && s.Known(o.Header) == nil {
			continue // another process has the id by now
		}
		if l := e.waits.last[o.Tid]; l != nil && l.born >= o.Seen.Values[bpf.WaitSince] && !l.still {
			continue // it has gone on since, and its record has been added
		}
		p := e.observedProcess(s, &o)
		event := fold.Event{TID: o.Tid, Thread: p.NameOf(o.Tid, o.Comm), Comm: o.Comm,
			Stack: observedStack(nil, &o, p.Attachment.Load())}
		e.waits.keep(p, &o, &event, cause.Blocked)
		e.waits.last[o.Tid].still = true
		s.Want(p, e.waits.last[o.Tid].stack, o.ClassEpoch) // while the process is there
	}
}
