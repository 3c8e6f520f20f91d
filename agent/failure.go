package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A stage is what the agent does for one process when it panics. A panic is a fault of the agent's that something in the
// process has brought out: it costs that process what is done at that stage, and nobody else anything.
//
// These goroutines handle processes, and recover: the pool's (proc.Catch), naming workers (work), the drainer (receive), those
// that close a window (end), the one that looks for VMs (withVM), and those that set breakpoints (estimator.run,
// listener.Engine, monitors.Engine), and Follow. The others only count, or wait for the kernel.
type stage string

const (
	stageDiscover stage = "discover" // look whether a process has a VM
	stageAttach   stage = "attach"   // read its library, and attach to its VM
	stageValues   stage = "values"   // find probes whose values are wanted
	stageObjects  stage = "objects"  // find the object that a page fault was in
	stageNames    stage = "names"    // name its frames
	stageJobs     stage = "jobs"     // read classes, counters and code for those who asked
	stageListen   stage = "listen"   // set breakpoints in it
	stageRecord   stage = "record"   // fold one of its records
	stageWindow   stage = "window"   // make its part of a profile
	stageObserve  stage = "observe"  // count what all of them did: no process is known to be the one
)

var stages = []stage{stageDiscover, stageAttach, stageValues, stageObjects, stageNames, stageJobs, stageListen, stageRecord, stageWindow, stageObserve}

// longestFailure is the longest time for which a process is left alone after a failure. The first one takes retryInterval,
// each other one twice as long as the last.
const longestFailure = time.Hour

// failures counts panics by stage. The zero value is ready for use.
type failures struct {
	mu     sync.Mutex
	counts map[stage]uint64
}

// add counts one, and returns how many there are.
func (f *failures) add(s stage) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[stage]uint64{}
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

// attempt does something for a process. If it panics that is counted, logged and noted, and attempt returns the panic.
func (ts *targets) attempt(s stage, p *targetProcess, do func()) error {
	err := proc.Catch(func() error {
		ts.reach(s, p.pid)
		do()
		return nil
	})
	if err != nil {
		ts.failed(s, p, err)
	}
	return err
}

// reach is called where a stage of a process begins. Tests make it panic.
func (ts *targets) reach(s stage, pid int) {
	if ts.fault != nil {
		ts.fault(s, pid)
	}
}

// discoverFailed counts a panic of the search for VMs, and has it leave p alone for a while.
func (ts *targets) discoverFailed(p *targetProcess, err error) {
	p.setRetry(proc.Monotonic() + retryInterval)
	ts.failed(stageDiscover, p, err)
}

// countFailure counts a panic over something that is no known process's, and returns how many there are of that stage.
func (ts *targets) countFailure(s stage) uint64 { return ts.panics.add(s) }

// failed counts a panic, logs the first one of a process with its stack, and notes it for the readers of its profiles.
func (ts *targets) failed(s stage, p *targetProcess, err error) {
	ts.panics.add(s)
	if !p.failureLogged.Swap(true) {
		ts.logFailure(s, p.pid, err)
	}
	p.note(fmt.Sprintf("process %d: the agent failed at stage %q, and left out what it does there: %v. "+
		"This is a fault of the agent; its log has the stack.", p.pid, s, err))
}

func (ts *targets) logFailure(s stage, pid int, err error) {
	ts.log.Error("the agent failed to handle a process; please report this", "pid", pid, "stage", string(s), "err", err, "stack", stackOf(err))
}

// stackOf is the stack of a panic.
func stackOf(err error) string {
	var e *proc.PanicError
	if !errors.As(err, &e) {
		return ""
	}
	return string(e.Stack)
}

// maxLost bounds the frames of a process that is left alone, and that are named when it is not any more.
const maxLost = 1 << 14

// A failureState is how a naming worker that failed goes on with a process.
type failureState struct {
	times int
	until time.Duration // CLOCK_MONOTONIC: the process is left alone before; 0 if it is not
	lost  []wanted      // frames that came meanwhile, maxLost at most
}

// workFailed gives back everything that the worker holds of p, as it may be half changed, and leaves p alone for a while.
func (ts *targets) workFailed(p *targetProcess, err error) {
	w := &p.work
	ts.failed(w.stage, p, err)
	frames, failure := append(w.again, w.frames...), w.failure
	ts.release(p)
	ts.releaseMap(p)
	p.code.Store(nil)
	p.attachment.Store(0)
	p.work = newWorkerState()
	failure.until = proc.Monotonic() + min(retryInterval<<min(failure.times, 16), longestFailure)
	failure.times++
	p.work.failure = failure
	p.setRetry(failure.until)
	p.mu.Lock()
	p.wanted = append(frames, p.wanted...)
	p.mu.Unlock()
	ts.leaveAlone(p)
}

// leaveAlone does without p what must be done for others: it answers those who wait, and gives frames of p's own code the name
// of what is unknown.
func (ts *targets) leaveAlone(p *targetProcess) {
	p.mu.Lock()
	frames, jobs := p.wanted, p.jobs
	p.wanted, p.loads, p.jobs = nil, nil, nil
	lost := &p.work.failure.lost
	for _, r := range frames {
		if r.kind == rawKernel {
			continue
		}
		p.names[r.rawFrame] = lostName
		if len(*lost) < maxLost {
			*lost = append(*lost, r)
		}
	}
	p.mu.Unlock()
	for _, j := range jobs {
		j.done <- fmt.Errorf("process %d: %w", p.pid, errFailed)
	}
	for _, r := range frames {
		if r.kind == rawKernel {
			p.setName(r.rawFrame, ts.nameKernel(uint64(r.frame)))
		}
	}
	for _, f := range ts.follow {
		f.leftAlone(p)
	}
}

// errFailed is what those hear who want something of a process that is left alone.
var errFailed = fmt.Errorf("the agent failed to handle it before: see its log: %w", proc.ErrQuarantined)

// lostName is the name of a frame of a process that is left alone.
var lostName = name{unknown: true, symbols: []symbolize.Symbol{symbolize.Intern(symbolize.Frame{
	Function: symbolize.Unknown, SystemName: symbolize.Unknown, Kind: symbolize.KindUnknown, Mapping: unmapped,
})}}

// askAgain has the frames named that got no name because p was left alone.
func (p *targetProcess) askAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = append(p.work.failure.lost, p.wanted...)
	p.work.failure.lost = nil
}
