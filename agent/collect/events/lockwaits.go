package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// lockWaits are waits for locks that have not ended. The kernel side records a wait when it ends,
// and knows which have begun; a window that ends before has the part until then, with the thread's
// stack, which is read from outside. The VM's list of threads has waits that had begun before the
// probes came: the kernel side is told of them, and follows them like any other wait.
type lockWaits struct {
	services *source.Services
	stacks   *waitStacks

	mu     sync.Mutex
	rest   *lockLook // when recording ended; nil if it has not
	seeded map[seeding]struct{}
	late   []lateWait

	// Only functions that have the State use these.
	// counted is when the waits began of which an ended window has a part, by thread; before is the
	// same for earlier windows.
	counted, before map[uint32]time.Duration
	stackOf         map[uint32]*waitingStack // stacks of waits that have not ended, as read last
}

// A seeding is what was done for a process and the turn of a plan.
type seeding struct {
	process *guest.Process
	plan    *fold.Coverage
}

// surveyTime bounds how long one process is asked for threads that wait for locks.
const surveyTime = 2 * time.Second

// maxWaitingStacks bounds the stacks that are kept of threads that still wait: up to some kB each.
const maxWaitingStacks = 4096

// A waitingStack is the record of the stack of a thread, in a wait that began then.
type waitingStack struct {
	since  uint64
	record []byte
}

// A lockLook is what threads waited for at some time.
type lockLook struct {
	at     time.Duration // CLOCK_MONOTONIC
	waits  []waitingThread
	stacks map[uint32][]byte // records by thread, of threads that wait and of those that have the locks
}

// A waitingThread waits for a lock that it has not acquired.
type waitingThread struct {
	vmruntime.LockWait // with ids of threads as the agent has them
	process            *guest.Process
	entry              bpf.LockWait // what the kernel side knows of it
	cover              *fold.Coverage
}

// newLockWaits loads what reads the stacks of waiting threads, unless others have loaded it; nil if
// locks are not wanted.
func newLockWaits(services *source.Services, opt *Options, others *waits) (*lockWaits, error) {
	if !opt.Kinds[profile.Locks] {
		return nil, nil
	}
	l := &lockWaits{
		services: services, seeded: map[seeding]struct{}{}, counted: map[uint32]time.Duration{},
		stackOf: map[uint32]*waitingStack{},
	}
	if others != nil {
		l.stacks = &others.stacks
		return l, nil
	}
	l.stacks = &waitStacks{services: services}
	if err := l.stacks.load(); err != nil {
		return nil, services.Refusal(err)
	}
	return l, nil
}

// close closes what newLockWaits has loaded.
func (l *lockWaits) close(others *waits) error {
	if l == nil || others != nil {
		return nil
	}
	return l.stacks.close()
}

// list lists the threads of a process that wait for locks, with ids as the agent has them.
func (l *lockWaits) list(ctx context.Context, p *guest.Process) (waits []vmruntime.LockWait, err error) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	got := make(chan []vmruntime.LockWait, 1)
	err = l.services.Resolver.WithVM(ctx, p, func(g *guest.VM) error {
		lister, err := guest.As[vmruntime.LockLister](g)
		if err != nil {
			return err
		}
		list, err := lister.LockWaits()
		got <- list
		return err
	})
	if err != nil {
		return nil, err
	}
	waits = slices.DeleteFunc(<-got, func(w vmruntime.LockWait) bool { return w.Monitor == 0 && waitsForWork(w.Class) })
	if len(waits) == 0 {
		return nil, nil
	}
	status, err := l.services.Root.Status(p.PID)
	if err != nil || len(status.NSpid) == 1 {
		return waits, err
	}
	return waits, l.translate(p, waits)
}

// translate replaces ids of threads in a PID namespace.
func (l *lockWaits) translate(p *guest.Process, waits []vmruntime.LockWait) error {
	tids, err := l.services.Root.Threads(p.PID)
	if err != nil {
		return fmt.Errorf("threads of process %d: %w", p.PID, err)
	}
	outer := make(map[uint32]uint32, len(tids))
	for _, tid := range tids {
		if status, err := l.services.Root.ThreadStatus(p.PID, tid); err == nil {
			outer[uint32(status.InnermostPID())] = uint32(tid)
		}
	}
	for i := range waits {
		waits[i].Thread, waits[i].Owner = outer[waits[i].Thread], outer[waits[i].Owner]
	}
	return nil
}

// seed has the kernel side know of the waits that had begun before a process was observed. What a
// plan missed that was observed before, in slices, ObservedPart.Apply makes up for.
func (e *Source) seed(ctx context.Context) {
	for _, of := range e.LockPlans() {
		for _, p := range of.Users {
			if !p.HasCalls() || !e.locks.firstSeeding(seeding{p, of.Cover}) || of.Turn > 1 {
				continue
			}
			e.Alongside(func() { // the process may take its time
				if err := e.seedOne(ctx, &of, p); err != nil {
					e.services.Log.Debug("cannot see which threads wait for locks", "pid", p.PID, "err", err)
				}
			})
		}
	}
}

// firstSeeding reports whether that is to be done now. Nothing is noted of a process that has
// ended, as leave may have been called before.
func (l *lockWaits) firstSeeding(s seeding) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.process.Exited.Load() {
		return false
	}
	_, done := l.seeded[s]
	l.seeded[s] = struct{}{}
	return !done
}

// seedOne does so for one process and plan. Waits that the kernel side knows are left as they are.
func (e *Source) seedOne(ctx context.Context, of *probes.LockPlan, p *guest.Process) error {
	now := proc.Monotonic()
	list, err := e.locks.list(ctx, p)
	if err != nil {
		return err
	}
	monitors, seeded := of.Waits == e.Programs.Entering, 0
	defer func() { e.locks.noteLate(p, now, seeded, false) }()
	for _, w := range list {
		if w.Thread == 0 || (w.Monitor != 0) != monitors {
			continue
		}
		entry := bpf.LockWait{Begin: uint64(now), Monitor: w.Monitor, Lock: cmp.Or(w.Monitor, w.Object), Every: 1,
			Turn: of.Turn, Flags: bpf.SeenContended}
		switch err := of.Waits.Update(w.Thread, &entry, ebpf.UpdateNoExist); {
		case errors.Is(err, ebpf.ErrKeyExist):
			continue
		case err != nil:
			return fmt.Errorf("register a wait in the kernel: %w", err)
		}
		seeded++
		key, waiting := bpf.LockKey{Lock: entry.Lock, Pid: uint32(p.PID)}, uint64(0)
		if err := e.Programs.WantedLocks.Lookup(&key, &waiting); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("look up a lock in the kernel: %w", err)
		}
		if err := e.Programs.WantedLocks.Put(&key, waiting+1); err != nil {
			return fmt.Errorf("register a lock in the kernel: %w", err)
		}
	}
	return nil
}

// leave forgets a process that has ended.
func (l *lockWaits) leave(p *guest.Process) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.seeded, func(s seeding, _ struct{}) bool { return s.process == p })
	// l.late is for the last window of the process as well, and is bounded.
}

// lookAtLocks returns the threads that wait for locks now and have for a while, with the stacks of
// these and of the threads that have the locks.
func (e *Source) lookAtLocks(ctx context.Context) *lockLook {
	l, look := e.locks, &lockLook{at: proc.Monotonic()}
	lists := map[*guest.Process][]vmruntime.LockWait{}
	entries := map[*ebpf.Map]map[uint32]bpf.LockWait{}
	for _, of := range e.LockPlans() {
		begun, known := entries[of.Waits]
		if !known {
			begun = oldWaits(of.Waits, look.at-leastAsked)
			entries[of.Waits] = begun
		}
		if len(begun) == 0 {
			continue
		}
		monitors := of.Waits == e.Programs.Entering
		for _, p := range of.Users {
			list, known := lists[p]
			if !known {
				var err error
				if list, err = l.list(ctx, p); err != nil {
					e.services.Log.Debug("cannot see which threads wait for locks", "pid", p.PID, "err", err)
				}
				lists[p] = list
			}
			for _, w := range list {
				entry, known := begun[w.Thread]
				if !known || entry.Turn != of.Turn || (w.Monitor != 0) != monitors || entry.Lock != 0 &&
					w.Monitor != 0 && entry.Lock != w.Monitor {
					continue
				}
				look.waits = append(look.waits, waitingThread{LockWait: w, process: p, entry: entry,
					cover: of.Cover})
			}
		}
	}
	l.readStacks(look)
	return look
}

// oldWaits returns the waits that began before then, by thread.
func oldWaits(m *ebpf.Map, then time.Duration) map[uint32]bpf.LockWait {
	var (
		tid   uint32
		entry bpf.LockWait
	)
	old := map[uint32]bpf.LockWait{}
	for all := m.Iterate(); all.Next(&tid, &entry); {
		if time.Duration(entry.Begin) < then {
			old[tid] = entry
		}
	}
	return old
}

// readStacks reads the stacks of the threads in look, those of waits that were read before only
// once.
func (l *lockWaits) readStacks(look *lockLook) {
	l.mu.Lock()
	before := l.stackOf
	l.mu.Unlock()
	kept, asked := map[uint32]*waitingStack{}, map[uint32]askedThread{}
	look.stacks = map[uint32][]byte{}
	for i := range look.waits {
		w := &look.waits[i]
		if w.Owner != 0 {
			asked[w.Owner] = askedThread{w.process.Identity(), w.Owner, uint64(look.at)}
		}
		if known := before[w.Thread]; known != nil && known.since == w.entry.Begin {
			kept[w.Thread] = known
			look.stacks[w.Thread] = known.record
		} else {
			asked[w.Thread] = askedThread{w.process.Identity(), w.Thread, w.entry.Begin}
		}
	}
	if len(asked) > 0 {
		records, _ := l.stacks.read(slices.Collect(maps.Values(asked)), time.Now().Add(maxAskedTime))
		var o bpf.Observation
		for _, raw := range records {
			if bpf.DecodeObservation(raw, &o) != nil {
				continue
			}
			look.stacks[o.Tid] = raw
			if since := o.Seen.Values[bpf.WaitSince]; since != uint64(look.at) && len(kept) < maxWaitingStacks {
				kept[o.Tid] = &waitingStack{since, raw}
			}
		}
	}
	l.mu.Lock()
	l.stackOf = kept
	l.mu.Unlock()
}

// finishLocks reads the waits for locks that have not ended, and returns what adds them to a window
// that ends.
func (e *Source) finishLocks() func(*fold.State, *fold.Window) {
	l := e.locks
	if l == nil {
		return func(*fold.State, *fold.Window) {}
	}
	l.mu.Lock()
	look := l.rest
	l.mu.Unlock()
	stopped := look != nil
	if !stopped {
		look = e.lookAtLocks(context.Background())
	}
	return func(s *fold.State, window *fold.Window) {
		end := window.Ended
		if stopped {
			end = min(end, look.at)
		}
		e.addWaiting(s, window, look, end)
	}
}

// addWaiting adds the waits to a window that ends then.
func (e *Source) addWaiting(s *fold.State, window *fold.Window, look *lockLook, end time.Duration) {
	l := e.locks
	counted := map[uint32]time.Duration{}
	for i := range look.waits {
		w := &look.waits[i]
		p := s.Table[w.process.PID]
		if p == nil || p.Process != w.process {
			continue
		}
		begin, n := time.Duration(w.entry.Begin), float64(w.entry.Every)
		piece, ok := w.cover.At(end)
		if begin >= end || !ok {
			continue
		}
		event := fold.Event{
			Kind: profile.Locks, TID: w.Thread, Every: w.entry.Every,
			Part:   fold.ObservedPart{Cover: w.cover, Piece: piece},
			Labels: profile.EventLabels{Class: w.Class, What: "park"},
			Sums:   fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n, n * float64(end-begin)}},
			Lock:   &fold.LockWait{Since: begin, Until: end, Counted: l.wasCounted(w.Thread, begin), Waiting: true},
		}
		if w.Monitor != 0 {
			event.Labels.What = "block"
		}
		epoch := p.ClassEpoch
		var o bpf.Observation
		if raw := look.stacks[w.Thread]; raw != nil && bpf.DecodeObservation(raw, &o) == nil {
			event.Stack, event.Thread, epoch = waitingJava(&o, p), p.NameOf(o.Tid, o.Comm), o.ClassEpoch
		}
		if raw := look.stacks[w.Owner]; raw != nil && bpf.DecodeObservation(raw, &o) == nil {
			event.Lock.Holder = &fold.Waker{
				Process: p, PID: o.Pid, TID: o.Tid, Thread: p.NameOf(o.Tid, o.Comm), Epoch: o.ClassEpoch,
				Stack: waitingJava(&o, p),
			}
		}
		if window.AddLockWait(s, p, uint32(w.process.PID), epoch, &event) {
			counted[w.Thread] = begin
		}
	}
	l.before, l.counted = l.counted, counted
	e.holders.forgetEnded()
}

// wasCounted reports whether an ended window has a part of a wait that began then.
func (l *lockWaits) wasCounted(tid uint32, begin time.Duration) bool {
	const apart = time.Millisecond // the kernel side's times of the begin, and of the end less the length
	for _, counted := range [...]map[uint32]time.Duration{l.counted, l.before} {
		if at, ok := counted[tid]; ok && (at-begin).Abs() < apart {
			return true
		}
	}
	return false
}

// waitingJava returns the stack of a waiting thread as a probe would have seen it: from its
// innermost frame of Java on.
func waitingJava(o *bpf.Observation, p *fold.Process) []guest.RawFrame {
	java := slices.IndexFunc(o.User, func(f bpf.Frame) bool {
		return f.Kind() != bpf.FrameNative &&
			f.Kind() != bpf.FrameStub
	})
	o.Kernel, o.User = nil, o.User[max(java, 0):]
	return observedStack(nil, o, p.Attachment.Load())
}

// describeLock adds what is known of a wait for a lock that has ended besides its length.
func (e *Source) describeLock(p *fold.Process, o *bpf.Observation, event *fold.Event) {
	if what := o.Seen.What; e.locks == nil || what != bpf.ObservedMonitor && what != bpf.ObservedPark ||
		event.Delay <= 0 {
		return
	}
	end := time.Duration(o.Time)
	wait := fold.LockWait{Since: end - event.Delay, Until: end}
	wait.Counted = e.locks.wasCounted(o.Tid, wait.Since)
	if id := (lockID{p, o.Seen.Values[1]}); o.Seen.Count > 1 && id.lock != 0 {
		wait.Holder = e.holders.during(id, uint64(wait.Since), o.Time)
		e.holders.acquire(id, o.Tid, o.Time)
	}
	if wait.Counted || wait.Holder != nil {
		event.Lock = &wait
	}
}
