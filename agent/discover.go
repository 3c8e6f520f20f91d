package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// watch attaches the programs that follow processes: exec, fork, exit.
func (a *Agent) watch() error {
	for name, prog := range map[string]*ebpf.Program{
		"exec": a.objects.ProcessExec, "fork": a.objects.ProcessFork, "exit": a.objects.ProcessExit,
	} {
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return fmt.Errorf("follow processes (%s): %w", name, err)
		}
		a.links = append(a.links, l)
	}
	return nil
}

// discoverDeadline bounds how long New waits for the VMs that run already; attaching goes on after it.
const discoverDeadline = time.Second

// discover attaches to the VMs that run already. Other processes are looked at when they are first sampled.
func (a *Agent) discover(ctx context.Context) {
	a.resolver.Wait(ctx, fold.Targets(a.adopt(a.withVM(ctx))), discoverDeadline)
}

// Pauses of seek: a VM that starts is found early in its life, and the processes beside it cost next to nothing.
const (
	seekInterval  = 100 * time.Millisecond // while no VM is attached
	alertInterval = time.Second            // while one is
)

// seek is discover over and over, until ctx ends: for an agent that does not sample, so that nothing else leads it to
// VMs that start later.
func (a *Agent) seek(ctx context.Context) {
	for {
		pause := seekInterval
		if a.Guests() > 0 {
			pause = alertInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		found := a.withVM(ctx)
		if len(found) == 0 {
			continue
		}
		// Whoever maps a VM has executed its last program; but if that were told only after it was adopted, it would
		// be retired as what it was before.
		if err := a.flush(ctx); err != nil {
			return
		}
		a.adopt(found)
	}
}

// withVM returns those of the chosen processes that map a VM which is not attached, or what may have a probe whose values are
// wanted.
func (a *Agent) withVM(ctx context.Context) (found []proc.Identity) {
	for _, pid := range a.candidates() {
		id, err := a.root.Identify(pid)
		if err != nil {
			continue
		}
		mapped, err := proc.Call(ctx, a.pool, pid, func() (proc.Maps, error) {
			a.resolver.Reach(target.StageDiscover, pid)
			return a.root.Maps(pid, proc.Executable)
		})
		var panicked *proc.PanicError
		if errors.As(err, &panicked) {
			a.discoverFailed(id, panicked)
			continue
		}
		if err == nil && (a.resolver.FindLibrary(mapped) != nil || a.sources.any(func(s source) bool { return s.finds(mapped) }) && !a.knows(pid)) {
			found = append(found, id)
		}
	}
	return found
}

// discoverFailed leaves a process alone for a while.
func (a *Agent) discoverFailed(id proc.Identity, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.processOf(id)
	a.resolver.DiscoverFailed(p.Process, err)
}

// listenFailed is failed for those who know a process by its identity.
func (a *Agent) listenFailed(id proc.Identity, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.table[id.PID]; p != nil {
		a.resolver.Failed(target.StageListen, p.Process, err)
	} else {
		a.resolver.CountFailure(target.StageListen)
	}
}

// processOf is the process with that identity in /proc; mu is held.
func (a *Agent) processOf(id proc.Identity) *fold.Process {
	p := a.table[id.PID]
	if p == nil {
		p = fold.NewProcess(id, false)
		a.table[id.PID] = p
	}
	return p
}

// processOfTarget is the process of a worker's, nil if it is gone.
func (a *Agent) processOfTarget(t *target.Process) *fold.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.table[t.PID]; p != nil && p.Process == t {
		return p
	}
	return nil
}

// knows tells whether a process was found already.
func (a *Agent) knows(pid int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.table[pid] != nil
}

// candidates are the processes in which a VM may be that is not attached, and is not to be left alone for now: the chosen ones and what they started, or all.
func (a *Agent) candidates() (pids []int) {
	if a.opt.Filter || len(a.opt.PIDs) > 0 {
		var pid uint32
		var one uint8
		for chosen := a.objects.Pids.Iterate(); chosen.Next(&pid, &one); {
			pids = append(pids, int(pid))
		}
	} else {
		pids, _ = a.root.PIDs()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := monotonic()
	return slices.DeleteFunc(pids, func(pid int) bool {
		p := a.table[pid]
		return p != nil && p.Settled(now)
	})
}

// adopt has workers attach to these processes' VMs.
func (a *Agent) adopt(found []proc.Identity) (adopted []*fold.Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range found {
		p := a.processOf(id)
		a.resolver.Submit(p.Process)
		adopted = append(adopted, p)
	}
	return adopted
}

// sweep retires processes that are gone although nobody said so, or that were sampled once more after their end was
// told. Without it the table would keep them until their pids are used again.
func (a *Agent) sweep() {
	a.mu.Lock()
	known := slices.Collect(maps.Values(a.table)) // first: who comes after the listing is not in it
	a.mu.Unlock()
	running, err := a.root.PIDs()
	if err != nil {
		a.log.Warn("cannot look for processes that ended", "err", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range known {
		if _, ok := slices.BinarySearch(running, p.PID); !ok {
			a.retire(p)
		}
	}
}

// checkPIDs fails if a chosen process does not run.
func checkPIDs(root proc.Root, pids []int) error {
	for _, pid := range pids {
		_, err := root.Identify(pid)
		if errors.Is(err, proc.ErrGone) {
			return fmt.Errorf("no process with pid %d: select a running process (pgrep java lists JVMs)", pid)
		}
		if err != nil {
			return fmt.Errorf("look at process %d: %w", pid, err)
		}
	}
	return nil
}
