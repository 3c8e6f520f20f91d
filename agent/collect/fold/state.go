package fold

import (
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// StateOptions are what a State needs from others. Its functions are called with the calling state;
// nil ones are not called.
type StateOptions struct {
	Join        JoinOptions            // NewState sets PlaceWaiting and Want
	MaxContexts int                    // most contexts of all windows together
	Submit      func(p *guest.Process) // makes a worker handle p soon
	Flush       func(*State)           // folds samples that wait for more records, because a window or a process ends
	// NeedNames calls Need for frames whose names must be kept, in addition to those of windows.
	NeedNames func(*State, NamesOf)
}

// NamesOf are the names of a process that are about to be forgotten, except those passed to Need.
type NamesOf struct {
	*Process
	Need func(guest.RawFrame)
}

// A State is the agent's knowledge of processes, and its open and closing windows. It is only
// reachable through an Owner.
type State struct {
	opt    StateOptions
	joiner *Joiner

	Table map[int]*Process      // by pid: its present owner
	Dirty map[*Process]struct{} // processes with new work for workers since the last Submit
	Names int64                 // frames of all processes whose names were requested and are kept
	// Hot enables counting of samples by the running code, in Process.Top and Process.Hot.
	Hot bool
	Counts
	CodeLoads uint64
	Lag       time.Duration // the age of the oldest record when the ring was last drained
	Slow      *SlowCalls    // nil unless invocations of a method are followed

	executed map[int]execution    // by pid: programs that were not sampled yet
	windows  map[*Window]struct{} // open
	closing  map[*Window]struct{} // closed, and not yet named
	contexts int                  // contexts of all windows
	urgent   bool                 // processes in Dirty must not wait
	oldest   uint64               // time of the oldest record since the last Submit, or noTime
	latest   time.Duration        // when a process was started, a program executed or classes unloaded, CLOCK_MONOTONIC
	runs     runTimes
	faded    time.Duration // when counts of busy code were last faded, CLOCK_MONOTONIC; 0 if never
}

const noTime = ^uint64(0)

// Counts account for received records: samples == folded + sum(discarded).
type Counts struct {
	Samples, Folded uint64
	Events          uint64 // records of code and processes
	Unknown         uint64 // records of no kind that this agent handles
	Discarded       map[string]uint64
}

// Clone returns a copy.
func (c Counts) Clone() Counts {
	c.Discarded = maps.Clone(c.Discarded)
	return c
}

// NoDiscards has every reason, so that a series exists before its first failure.
func NoDiscards() map[string]uint64 {
	return map[string]uint64{profile.Malformed: 0, profile.EmptyStack: 0, profile.Failed: 0, profile.NoWindow: 0,
		profile.UnknownStack: 0}
}

// NewState returns a State without processes and windows.
func NewState(opt StateOptions) *State {
	s := &State{
		opt: opt, Table: map[int]*Process{}, Dirty: map[*Process]struct{}{}, Counts: Counts{Discarded: NoDiscards()},
		executed: map[int]execution{}, windows: map[*Window]struct{}{}, closing: map[*Window]struct{}{}, oldest: noTime,
		latest: proc.Monotonic(), // every process is new to it
	}
	s.opt.Join.PlaceWaiting = s.placeWaiting
	s.opt.Join.Want = func(p *Process, stack []guest.RawFrame) {
		if p.Want(stack, p.ClassEpoch, &s.Names) {
			s.opt.Submit(p.Process)
		}
	}
	s.joiner = newJoiner(s.opt.Join)
	return s
}

// Joiner returns the joiner of samples with their contexts.
func (s *State) Joiner() *Joiner { return s.joiner }

// Process returns the process of a record.
func (s *State) Process(h *bpf.Header) *Process {
	p := s.Table[int(h.Pid)]
	if p != nil && p.is(h) {
		return p
	}
	if p != nil {
		s.succeed(p, h)
	}
	p = NewProcess(proc.Identity{PID: int(h.Pid), Start: h.Start, Exec: h.Exec}, true)
	if e, ok := s.executed[int(h.Pid)]; ok && e.start == h.Start && e.exec == h.Exec {
		p.called(e.comm[:])
	}
	delete(s.executed, int(h.Pid))
	s.latest = max(s.latest, p.Noticed-p.ID.Age()) // one that is old is not expected to end now
	s.Table[int(h.Pid)] = p
	return p
}

// An execution is a program that a process has begun to run.
type execution struct {
	start uint64 // start of the process
	exec  uint32
	comm  [16]byte // its name
}

// maxExecuted bounds the programs that wait for a first sample.
const maxExecuted = 1 << 14

// Known returns the process of a record, nil if it is unknown, or another process has its pid by
// now.
func (s *State) Known(h *bpf.Header) *Process {
	if p := s.Table[int(h.Pid)]; p != nil && p.is(h) {
		return p
	}
	return nil
}

// is compares identities. A process that was found in /proc takes over the more precise identity of
// the kernel side.
func (p *Process) is(h *bpf.Header) bool {
	if !p.Precise {
		if p.ID.Ticks() != (proc.Identity{Start: h.Start}).Ticks() {
			return false
		}
		p.ID.Start, p.ID.Exec, p.Precise = h.Start, h.Exec, true
		return true
	}
	return p.ID.Start == h.Start && p.ID.Exec == h.Exec
}

// Lookup returns the state's process for a worker's, nil if it is gone.
func (s *State) Lookup(t *guest.Process) *Process {
	if p := s.Table[t.PID]; p != nil && p.Process == t {
		return p
	}
	return nil
}

// Find returns the process with that identity in /proc. An earlier process with the pid is retired.
func (s *State) Find(id proc.Identity) *Process {
	p := s.Table[id.PID]
	if p != nil && p.Ticks != id.Ticks() {
		s.Retire(p)
		p = nil
	}
	if p == nil {
		p = NewProcess(id, false)
		s.Table[id.PID] = p
	}
	return p
}

// Executed records that a process runs another program: everything known belongs to the old one.
// The new one is examined when it is first sampled: most are too short-lived for that.
func (s *State) Executed(e *bpf.ProcessEvent) {
	h := &e.Header
	s.latest = proc.Monotonic()
	if len(s.executed) >= maxExecuted { // records of ends were lost
		clear(s.executed)
	}
	s.executed[int(h.Pid)] = execution{h.Start, h.Exec, e.Comm}
	if p := s.Table[int(h.Pid)]; p != nil && !(p.Precise && p.ID.Start == h.Start && p.ID.Exec == h.Exec) {
		s.succeed(p, h)
	}
}

// succeed retires p, as a record is of another process with its pid, or of its next program.
func (s *State) succeed(p *Process, h *bpf.Header) {
	if p.ID.Ticks() == (proc.Identity{Start: h.Start}).Ticks() {
		p.Replaced(time.Duration(h.Time))
	}
	s.Retire(p)
}

// Ended records that a process has ended.
func (s *State) Ended(h *bpf.Header) {
	delete(s.executed, int(h.Pid))
	if p := s.Known(h); p != nil {
		s.Retire(p)
	}
}

// Retire marks a process as gone. It leaves the table with the next Submit: the kernel works for a
// process, and ticks in it, for a moment after announcing its end.
func (s *State) Retire(p *Process) {
	s.Flush() // bursts of it that no further record will end
	p.Exited.Store(true)
	s.Dirty[p] = struct{}{}
}

// Flush makes sources fold samples that wait for more records.
func (s *State) Flush() {
	if s.opt.Flush != nil {
		s.opt.Flush(s)
	}
}

// Loaded records that a VM of a process has loaded code.
func (s *State) Loaded(l *bpf.CodeLoad) {
	s.CodeLoads++
	p := s.Process(l.Header)
	p.Loaded(vmruntime.CodeLoad{
		At: time.Duration(l.Header.Time), Begin: l.Begin, Size: l.Size, Version: l.CompileID & 0xfffffff,
		Class: string(l.Class), Name: string(l.Name), Signature: string(l.Signature),
	})
	s.Dirty[p] = struct{}{}
}

// Take folds a sample of p into all windows that want it.
func (s *State) Take(p *Process, sample *bpf.Sample) {
	now := sample.Time
	s.Received(now)
	p.Samples++
	s.Unloaded(p, sample.ClassEpoch)
	code := p.Code.Load()
	t := s.joiner.Join(p, sample, code)
	unknown := p.ObserveThread(sample)
	if code.Due(time.Duration(now)) || p.Due(now) || unknown {
		s.Dirty[p] = struct{}{}
	}
	if len(t.Stack) == 0 {
		s.Discard(profile.EmptyStack)
		return
	}
	if s.Hot {
		t.complete()
		p.Top.Add(t.Stack, 1)
		p.Hot.Add(t.Stack, code)
	}
	s.Slow.sample(s, p, &t)
	wanted := false
	for w := range s.windows {
		if !w.Wants(int(sample.Pid)) {
			w.Filtered++
			continue
		}
		wanted = true
		w.Received++
		if n := s.add(w, p, &t); n > 0 { // the others' names were asked for when they were new
			s.Want(p, t.Stack[:min(n, len(t.Stack))], sample.ClassEpoch)
		}
	}
	if !wanted {
		s.Discarded[profile.NoWindow]++
		return
	}
	s.Folded++
}

// Unloaded records how many times p's VM has unloaded classes. While it does, names are read as
// soon as those of a new process.
func (s *State) Unloaded(p *Process, epoch uint32) {
	if p.ClassEpoch == epoch {
		return
	}
	p.ClassEpoch = epoch
	p.renewed = proc.Monotonic()
	s.latest = p.renewed
}

// Received records the time of a record, for Lag.
func (s *State) Received(time uint64) { s.oldest = min(s.oldest, time) }

// Discard drops a sample that no window can hold, whatever process it belongs to.
func (s *State) Discard(why string) {
	s.Discarded[why]++
	for w := range s.windows {
		w.Received++
		w.Discarded[why]++
	}
}

// Fail accounts for a sample that was received and neither folded nor discarded.
func (s *State) Fail() {
	s.Discarded[profile.Failed] += s.Samples - s.Folded - profile.Sum(s.Discarded)
	for w := range s.windows { // those that had counted it
		w.Discarded[profile.Failed] += w.Received - w.Folded - profile.Sum(w.Discarded)
	}
}

// Want requests the names of frames of p.
func (s *State) Want(p *Process, stack []guest.RawFrame, epoch uint32) {
	if p.Want(stack, epoch, &s.Names) {
		s.Dirty[p] = struct{}{}
	}
}

// AddEvent adds an event to all windows that want it. It returns false if there is none.
func (s *State) AddEvent(p *Process, pid, epoch uint32, e *Event) (wanted bool) {
	e.Part.Apply(e)
	for w := range s.windows {
		if !w.Wants(int(pid)) {
			continue
		}
		wanted = true
		w.addEvent(s, p, epoch, e)
	}
	return wanted
}

// addEvent adds an event to a window that wants its process.
func (w *Window) addEvent(s *State, p *Process, epoch uint32, e *Event) {
	set := w.EventSet(p)
	if e.Lock != nil {
		e = w.lockEvent(s, p, set, e)
	}
	if e.Kind == profile.Locks {
		set.ByKind(profile.Locks).lockTimesOf(e).addLock(e, w.Began)
	}
	if set.Add(e) {
		s.Want(p, e.Stack, epoch)
	}
}

// AddCall adds a call to every window that wants its process. It returns whether there is one, and
// whether one had no room.
func (s *State) AddCall(p *Process, add func(*CallSet) bool) (wanted, full bool) {
	for w := range s.windows {
		if !w.Wants(p.PID) {
			continue
		}
		wanted = true
		full = !add(w.CallSet(p)) || full
	}
	return wanted, full
}

// Expedite has a worker come to p without waiting until the ring is drained.
func (s *State) Expedite(p *Process) {
	s.Dirty[p] = struct{}{}
	p.expedited, s.urgent = true, true
}

// Urgent reports whether a process in Dirty must not wait.
func (s *State) Urgent() bool { return s.urgent }

// Submit hands all processes with new work to workers.
func (s *State) Submit() { s.submit(func(*Process) bool { return true }) }

// SubmitDue is Submit for the processes that have waited for as long as they should: a worker does
// much work at once in less time than the same work little by little.
func (s *State) SubmitDue() {
	now := proc.Monotonic()
	s.submit(func(p *Process) bool {
		pause := pauseOf(p.renewed, now)
		return p.expedited || p.Exited.Load() || now-p.submitted >= pause-max(early, pause/8)
	})
}

// early, or an eighth of its pause, is by how much a process's turn may be early: the drainer comes a
// little before or after the time (proc.InStep), and otherwise the next time that it comes.
const early = 60 * time.Millisecond

// Pause is how long the drainer may leave records in the ring: no longer than SubmitDue leaves the work
// of the youngest process. Work of an older one may wait longer, as that process is not expected to
// end soon.
func (s *State) Pause() time.Duration { return pauseOf(s.latest, proc.Monotonic()) }

func (s *State) submit(due func(*Process) bool) {
	s.urgent = false
	now := proc.Monotonic()
	if s.oldest != noTime {
		s.Lag = now - time.Duration(s.oldest)
		s.oldest = noTime
	}
	for p := range s.Dirty {
		if !due(p) {
			continue
		}
		delete(s.Dirty, p)
		p.expedited, p.submitted = false, now
		if p.Exited.Load() {
			if s.Table[p.PID] == p {
				delete(s.Table, p.PID)
			}
			s.Slow.ended(p)
			if p.Holders == 0 {
				s.Trim(p)
			}
		}
		s.opt.Submit(p.Process)
	}
}
