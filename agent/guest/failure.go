package guest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Stage is what the agent does for one process when it panics. A panic is a fault of the agent's
// that something in the process has brought out: it costs that process what is done at that stage,
// and nobody else anything.
//
// These goroutines handle processes, and recover: the pool's (proc.Catch), workers (Resolver.work),
// and in package agent the drainer (receive), those that close a window (end), the one that looks
// for VMs (withVM), those that set breakpoints (hotspot.Engine, listener.Engine, monitors.Engine),
// and Follow. The others only count, or wait for the kernel.
type Stage string

// The stages.
const (
	StageDiscover Stage = "discover" // look whether a process has a VM
	StageAttach   Stage = "attach"   // read its library, and attach to its VM
	StageValues   Stage = "values"   // find probes whose values are wanted
	StageObjects  Stage = "objects"  // find the object that a page fault was in
	StageNames    Stage = "names"    // name its frames
	StageUnwind   Stage = "unwind"   // make unwind tables of its code
	StageJobs     Stage = "jobs"     // read classes, counters and code for those who asked
	StageListen   Stage = "listen"   // set breakpoints in it
	StageRecord   Stage = "record"   // fold one of its records
	StageWindow   Stage = "window"   // make its part of a profile
	StageObserve  Stage = "observe"  // count what all of them did: no process is known to be the one
	StageUpkeep   Stage = "upkeep"   // what is done from time to time for all of them, such as setting rates
	StageAnswer   Stage = "answer"   // answer a request about them
)

var stages = []Stage{StageDiscover, StageAttach, StageValues, StageObjects, StageNames, StageUnwind, StageJobs,
	StageListen, StageRecord, StageWindow, StageObserve, StageUpkeep, StageAnswer}

// longestFailure is the longest time for which a process is left alone after a failure. The first
// one takes retryInterval, each other one twice as long as the last.
const longestFailure = time.Hour

// failures counts panics by stage. The zero value is ready for use.
type failures struct {
	mu     sync.Mutex
	counts map[Stage]uint64
}

// add counts one, and returns how many there are.
func (f *failures) add(s Stage) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[Stage]uint64{}
	}
	f.counts[s]++
	return f.counts[s]
}

// all has every stage, those that never failed with 0.
func (f *failures) all() map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]uint64, len(stages))
	for _, s := range stages {
		all[string(s)] = f.counts[s]
	}
	return all
}

// Attempt calls do, which does something for a process. A panic is counted, logged and noted, and
// Attempt returns it.
func (rs *Resolver) Attempt(s Stage, p *Process, do func()) error {
	err := proc.Catch(func() error {
		rs.Reach(s, p.PID)
		do()
		return nil
	})
	if err != nil {
		rs.Failed(s, p, err)
	}
	return err
}

// Reach is called where a stage of a process begins. Tests make it panic (Config.Fault).
func (rs *Resolver) Reach(s Stage, pid int) {
	if rs.fault != nil {
		rs.fault(s, pid)
	}
}

// DiscoverFailed counts a panic of the search for VMs, and has it leave p alone for a while.
func (rs *Resolver) DiscoverFailed(p *Process, err error) {
	p.SetRetry(proc.Monotonic() + retryInterval)
	rs.Failed(StageDiscover, p, err)
}

// CountFailure counts a panic that is of no known process, and returns how many there are of that
// stage.
func (rs *Resolver) CountFailure(s Stage) uint64 { return rs.panics.add(s) }

// Keep calls do, which is for no process alone. A panic is counted, the first one of a stage is
// logged with its stack, and what is done next goes on.
func (rs *Resolver) Keep(s Stage, do func()) {
	err := proc.Catch(func() error {
		do()
		return nil
	})
	if err != nil && rs.CountFailure(s) == 1 {
		rs.log.Error("the agent failed at what it does for all processes; please report this", "stage", string(s),
			"err", err, "stack", StackOf(err))
	}
}

// Failed counts a panic, logs the first one of a process with its stack, and notes it in the
// process's profiles.
func (rs *Resolver) Failed(s Stage, p *Process, err error) {
	rs.panics.add(s)
	if !p.failureLogged.Swap(true) {
		rs.LogFailure(s, p.PID, err)
	}
	p.Note(fmt.Sprintf("process %d: the agent failed at stage %q and skipped it: %v. "+
		"This is a bug of the agent; its log contains the stack.", p.PID, s, err))
}

// LogFailure logs a panic over a process, with its stack.
func (rs *Resolver) LogFailure(s Stage, pid int, err error) {
	rs.log.Error("the agent failed to handle a process; please report this", "pid", pid, "stage", string(s), "err", err,
		"stack", StackOf(err))
}

// StackOf is the stack of a panic that proc.Catch returned; "" of another error.
func StackOf(err error) string {
	var e *proc.PanicError
	if !errors.As(err, &e) {
		return ""
	}
	return string(e.Stack)
}

// maxLost bounds the frames of a process that is left alone, and that are named when it is not any
// more.
const maxLost = 1 << 14

// A failureState is how a naming worker that failed goes on with a process.
type failureState struct {
	times int
	until time.Duration // CLOCK_MONOTONIC: the process is left alone before; 0 if it is not
	lost  []Wanted      // frames that came meanwhile, maxLost at most
}

// workFailed gives back everything that the worker holds of p, as it may be half changed, and
// leaves p alone for a while.
func (rs *Resolver) workFailed(p *Process, err error) {
	w := &p.work
	rs.Failed(w.stage, p, err)
	frames, failure := append(w.again, w.frames...), w.failure
	rs.release(p)
	rs.releaseMap(p)
	p.Code.Store(nil)
	p.Attachment.Store(0)
	p.work = newWorkerState()
	failure.until = proc.Monotonic() + min(retryInterval<<min(failure.times, 16), longestFailure)
	failure.times++
	p.work.failure = failure
	p.SetRetry(failure.until)
	p.mu.Lock()
	p.wanted = append(frames, p.wanted...)
	p.mu.Unlock()
	rs.leaveAlone(p)
}

// leaveAlone does without p what must be done for others: it answers those who wait, and gives
// frames of p's own code the name of what is unknown.
func (rs *Resolver) leaveAlone(p *Process) {
	p.mu.Lock()
	frames, jobs := p.wanted, p.jobs
	p.wanted, p.loads, p.jobs = nil, nil, nil
	lost := &p.work.failure.lost
	for _, r := range frames {
		if r.Kind == RawKernel {
			continue
		}
		if len(*lost) < maxLost {
			*lost = append(*lost, r)
		}
	}
	p.mu.Unlock()
	for _, j := range jobs {
		j.done <- fmt.Errorf("process %d: %w", p.PID, errFailed)
	}
	for _, r := range frames {
		if r.Kind == RawKernel {
			p.SetName(r.RawFrame, rs.nameKernel(uint64(r.Frame)))
		} else {
			p.SetName(r.RawFrame, lostName)
		}
	}
	for _, f := range rs.follow {
		f.LeftAlone(p)
	}
}

// errFailed is the error of requests about a process that is left alone.
var errFailed = fmt.Errorf("the agent failed to handle it before: see its log: %w", proc.ErrQuarantined)

// lostName is the name of a frame of a process that is left alone.
var lostName = Name{Unknown: true, Symbols: []symbol.Symbol{symbol.Intern(symbol.Frame{
	Function: symbol.Unknown, SystemName: symbol.Unknown, Kind: symbol.KindUnknown, Mapping: unmapped,
})}}

// askAgain has the frames named that got no name because p was left alone.
func (p *Process) askAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = append(p.work.failure.lost, p.wanted...)
	p.work.failure.lost = nil
}
