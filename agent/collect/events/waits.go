package events

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
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// waits are the off-CPU time of threads. The kernel side records a wait when its thread comes back.
// To a window that ends before, the wait is added with the stack of the thread's last one, if that
// was at the same place; otherwise its stack is read.
type waits struct {
	kernel *bpf.OffCPU
	stacks waitStacks
	rate   waitRate
	share  followedShare
	load   chosenLoad
	wakers bool          // wakers are recorded
	begun  time.Duration // when recording began

	governing sync.WaitGroup
	endGovern context.CancelFunc // nil if recording did not start

	mu      sync.Mutex
	stopped time.Duration      // when recording ended, 0 if it has not
	rest    []bpf.OffCPUThread // threads then

	// Only functions that have the State use these.
	last    map[uint32]*lastWait // by thread
	vain    map[uint32]uint64    // waits whose stacks could not be read: since when, by thread
	frames  int                  // frames of the stacks in last
	before  reading
	pending pendingWakers
	code    kernelCode
}

// maxLastFrames bounds the frames of stacks that are kept of threads' last waits: 24 bytes each.
// Stacks beyond it are not known if their threads still wait when a window ends.
const maxLastFrames = 1 << 19

// A lastWait is the last recorded wait of a thread.
type lastWait struct {
	process *fold.Process
	born    uint64 // when it began
	pc, sp  uint64 // the user's registers
	stack   []guest.RawFrame
	epoch   uint32
	still   bool // the stack was read while the thread waited: its record is still to come
	seen    bool // scratch
}

// newWaits loads the programs; nil if off-CPU time is not wanted.
func newWaits(services *source.Services, opt *Options) (*waits, error) {
	if !opt.Waits() {
		return nil, nil
	}
	of := bpf.OffCPUOptions{Wakers: opt.Wakers}
	if opt.Slow {
		of.Inside = firstMean
	}
	kernel, err := services.Objects.LoadOffCPU(of)
	if err != nil {
		return nil, services.Refusal(fmt.Errorf("-e offcpu and -e wall need Linux 6.15, or an earlier one that lets "+
			"BPF programs trace functions (fentry): %w", err))
	}
	w := &waits{
		kernel: kernel, last: map[uint32]*lastWait{}, vain: map[uint32]uint64{}, stacks: waitStacks{services: services},
		wakers: opt.Wakers,
		code:   kernelCode{function: services.Resolver.KernelFunction},
	}
	if err := w.stacks.load(); err != nil {
		return nil, errors.Join(services.Refusal(err), kernel.Close())
	}
	return w, nil
}

// start begins to record. Waits may take that many CPUs at first.
func (w *waits) start(allowed float64) error {
	w.begun = proc.Monotonic()
	mean := w.rate.begin(w.begun, allowed)
	if err := w.kernel.SetPause(w.rate.pause()); err != nil {
		return err
	}
	return w.kernel.Begin(mean)
}

// follow has the threads followed of processes that were chosen since the last call.
func (w *waits) follow() error {
	if w == nil {
		return nil
	}
	return w.kernel.Follow()
}

// stop ends recording.
func (w *waits) stop() error {
	if w == nil {
		return nil
	}
	if w.endGovern != nil {
		w.endGovern()
		w.governing.Wait()
	}
	rest, err := w.look()
	w.mu.Lock()
	w.rest, w.stopped = rest, proc.Monotonic()
	w.mu.Unlock()
	_, noted := w.noteMean()
	return errors.Join(err, noted, w.kernel.SetMean(0))
}

func (w *waits) close() error {
	if w == nil {
		return nil
	}
	return errors.Join(w.stacks.close(), w.kernel.Close())
}

// look returns the threads that are followed.
func (w *waits) look() (threads []bpf.OffCPUThread, err error) {
	err = w.kernel.Threads(func(a *bpf.OffCPUThread) { threads = append(threads, *a) })
	return threads, err
}

// awayStates are the states of threads, as profiles have them.
var awayStates = [...]string{
	bpf.OffCPUBlocked: cause.Blocked, bpf.OffCPUDisk: cause.Uninterruptible, bpf.OffCPUPreempted: cause.Runnable,
	bpf.OffCPUThrottled: cause.Throttled,
	bpf.OffCPUStopped:   cause.Stopped,
}

func awayState(state uint8) string {
	if int(state) >= len(awayStates) || awayStates[state] == "" {
		return cause.Blocked
	}
	return awayStates[state]
}

// handle folds the record of a wait. It returns false if no window wants it; ok is false if the
// record is malformed.
func (w *waits) handle(s *fold.State, p *fold.Process, o *bpf.Observation, event *fold.Event) (wanted, ok bool) {
	if w == nil || int(o.Seen.Count) <= bpf.WaitLeast || o.Seen.Values[bpf.WaitSince] > o.Time {
		return false, false
	}
	v := &o.Seen.Values
	wait := fold.Wait{
		Since: time.Duration(v[bpf.WaitSince]), Until: time.Duration(o.Time),
		Delay: time.Duration(min(v[bpf.WaitDelay], o.Time)), State: awayState(o.Seen.Flags), Wakers: w.wakers,
		SP: v[bpf.WaitSP],
	}
	mean := time.Duration(v[bpf.WaitMean])
	every := float64(max(o.Seen.Every, 1))
	wait.Weight = every * weightOf(wait.Until-wait.Since, mean)
	if w.wakers {
		wait.Waker = w.pending.take(o.Tid, v[bpf.WaitSince])
	}
	// The part before it was drawn for its own length.
	if woken := v[bpf.WaitWoken]; woken > v[bpf.WaitSince] && woken <= o.Time {
		wait.Woken, wait.DelayWeight = time.Duration(woken), wait.Weight
		wait.Weight = 0
		if length := wait.Woken - wait.Since; length > time.Duration(v[bpf.WaitLeast]) {
			wait.Weight = every * weightOf(length, mean)
		}
	}
	w.keep(p, o, event, wait.State)
	return s.AddWait(p, o.Pid, o.ClassEpoch, event, &wait), true
}

// weightOf is how many waits of that length one stands for that was drawn.
func weightOf(length, mean time.Duration) float64 {
	return max(float64(mean)/float64(max(length, 1)), 1)
}

// keep notes the last wait of a thread. If it was stopped or waited for a CPU, only when it began:
// it may have been on its way to a wait, where its registers are the same and the stack is not.
func (w *waits) keep(p *fold.Process, o *bpf.Observation, event *fold.Event, state string) {
	l := w.last[o.Tid]
	if l == nil {
		l = &lastWait{}
		w.last[o.Tid] = l
	}
	if state != cause.Blocked && state != cause.Uninterruptible {
		l.born, l.still = o.Seen.Values[bpf.WaitSince], false
		return
	}
	if l.process != p || !slices.Equal(l.stack, event.Stack) {
		w.frames -= len(l.stack)
		l.stack = nil
		if w.frames+len(event.Stack) <= maxLastFrames {
			l.stack = slices.Clone(event.Stack)
			w.frames += len(l.stack)
		}
	}
	v := &o.Seen.Values
	l.process, l.epoch, l.still = p, o.ClassEpoch, false
	l.born, l.pc, l.sp = v[bpf.WaitSince], v[bpf.WaitPC], v[bpf.WaitSP]
}

// Finishing implements source.Finisher: threads that wait when a window ends count up to its end.
func (e *Source) Finishing() func(*fold.State, *fold.Window) {
	locks, waits, apart := e.finishLocks(), e.finishWaits(), e.lookApart()
	return func(s *fold.State, window *fold.Window) {
		e.apart = apart
		locks(s, window)
		waits(s, window)
	}
}

// finishWaits does so for off-CPU time.
func (e *Source) finishWaits() func(*fold.State, *fold.Window) {
	w := e.waits
	var frozen map[bpf.VirtualThread]bpf.UnmountedWait
	if e.Options.Kinds[profile.Locks] {
		frozen = e.Frozen()
	}
	virtual := e.finishVirtual(frozen)
	if w == nil {
		return virtual
	}
	w.mu.Lock()
	away, stopped := w.rest, w.stopped
	w.mu.Unlock()
	if stopped == 0 {
		var err error
		if away, err = w.look(); err != nil {
			e.services.Log.Error("cannot read which threads are off the CPU", "err", err)
		}
	}
	if _, err := w.noteMean(); err != nil { // for the notes of the window
		e.services.Log.Error("cannot read how many waits are recorded", "err", err)
	}
	now, end := away, time.Now().Add(maxAskedTime)
	for range maxRounds {
		asked := fold.Get(e.services.Owner, func(s *fold.State) []askedThread { return w.unknown(s, now, leastAsked) })
		if len(asked) == 0 || time.Now().After(end) {
			break
		}
		e.readStacks(asked, end)
		var err error
		if now, err = w.look(); err != nil {
			break // the one before is as good
		}
		if stopped == 0 { // Stopping took a while.
			away = now
		}
	}
	return func(s *fold.State, window *fold.Window) {
		virtual(s, window)
		end := window.Ended
		if stopped != 0 {
			end = min(end, stopped)
		}
		w.finish(s, window, away, end)
	}
}

// finish adds the waits of threads that were away to a window that ends then. Threads that no
// longer exist are forgotten.
func (w *waits) finish(s *fold.State, window *fold.Window, away []bpf.OffCPUThread, end time.Duration) {
	w.addTimes(s, window, away, end)
	mean := w.rate.now()
	for i := range away {
		a := &away[i]
		l := w.last[a.Tid]
		if l != nil {
			l.seen = true
		}
		w.pending.see(a.Tid)
		wait := fold.Wait{Since: time.Duration(a.Since), Until: end, State: awayState(uint8(a.State)),
			Weight: float64(max(a.Every, 1)), Away: true, SP: a.Sp}
		wait.Short = wait.Until-wait.Since < mean
		if a.Since == 0 || wait.Since >= end || l != nil && l.born >= a.Since && !l.still || !window.Wants(int(a.Pid)) {
			continue // it has come back, and its record has been added
		}
		p := s.Process(&bpf.Header{Pid: a.Pid, Tid: a.Tid, Start: a.Start, Exec: a.Exec})
		event := fold.Event{TID: a.Tid, Thread: p.NameOf(a.Tid, a.Comm[:]), Comm: a.Comm[:]}
		epoch := p.ClassEpoch
		if l.at(p, a) {
			event.Stack, epoch = l.stack, l.epoch
		}
		s.Slow.Wait(s, p, epoch, &event, &wait)
		window.AddWait(s, p, a.Pid, epoch, &event, &wait)
	}
	for tid, l := range w.last {
		if !l.seen {
			w.frames -= len(l.stack)
			delete(w.last, tid)
		}
		l.seen = false
	}
	if len(w.vain) > 0 {
		still := make(map[uint32]uint64, len(away))
		for i := range away {
			still[away[i].Tid] = away[i].Since
		}
		maps.DeleteFunc(w.vain, func(tid uint32, since uint64) bool { return still[tid] != since })
	}
	w.pending.forget(end)
}

// needNames calls need for the frames of the last waits of p's threads.
func (w *waits) needNames(p *fold.Process, need func(guest.RawFrame)) {
	if w == nil {
		return
	}
	for _, l := range w.last {
		if l.process == p {
			for _, f := range l.stack {
				need(f)
			}
		}
	}
	w.pending.needNames(p, need)
}
