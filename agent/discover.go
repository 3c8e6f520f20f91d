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
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// watch attaches the programs that follow processes: exec, fork, exit.
func (a *Agent) watch() error {
	for name, prog := range map[string]*ebpf.Program{
		"exec": a.services.Objects.ProcessExec, "fork": a.services.Objects.ProcessFork, "exit": a.services.Objects.ProcessExit,
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
	a.services.Resolver.Wait(ctx, fold.Targets(a.adopt(a.withVM(ctx))), discoverDeadline)
}

// Pauses of seek: a VM that starts is found early in its life, and other processes cost next to nothing.
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
		// A process that maps a VM has executed its last program. But if the record of that exec were handled after the process
		// was adopted, the process would be retired as the program before.
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
		id, err := a.services.Root.Identify(pid)
		if err != nil {
			continue
		}
		mapped, err := proc.Call(ctx, a.services.Pool, pid, func() (proc.Maps, error) {
			a.services.Resolver.Reach(target.StageDiscover, pid)
			return a.services.Root.Maps(pid, proc.Executable)
		})
		var panicked *proc.PanicError
		if errors.As(err, &panicked) {
			a.discoverFailed(id, panicked)
			continue
		}
		if err == nil && (a.services.Resolver.FindLibrary(mapped) != nil || a.sources.finds(mapped) && !a.knows(pid)) {
			found = append(found, id)
		}
	}
	return found
}

// discoverFailed leaves a process alone for a while.
func (a *Agent) discoverFailed(id proc.Identity, err error) {
	if p := fold.Get(a.owner, func(s *fold.State) *fold.Process { return s.Find(id) }); p != nil {
		a.services.Resolver.DiscoverFailed(p.Process, err)
	}
}

// knows reports whether a process was found already.
func (a *Agent) knows(pid int) bool {
	return fold.Get(a.owner, func(s *fold.State) bool { return s.Table[pid] != nil })
}

// candidates are the processes in which a VM may be that is not attached, and is not to be left alone for now: the chosen ones and what they started, or all.
func (a *Agent) candidates() (pids []int) {
	if a.opt.Filter || len(a.opt.PIDs) > 0 {
		var pid uint32
		var one uint8
		for chosen := a.services.Objects.Pids.Iterate(); chosen.Next(&pid, &one); {
			pids = append(pids, int(pid))
		}
	} else {
		pids, _ = a.services.Root.PIDs()
	}
	now := monotonic()
	a.owner.Do(func(s *fold.State) {
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			p := s.Table[pid]
			return p != nil && p.Settled(now)
		})
	})
	return pids
}

// adopt has workers attach to these processes' VMs.
func (a *Agent) adopt(found []proc.Identity) (adopted []*fold.Process) {
	a.owner.Do(func(s *fold.State) {
		for _, id := range found {
			p := s.Find(id)
			a.services.Resolver.Submit(p.Process)
			adopted = append(adopted, p)
		}
	})
	return adopted
}

// sweep retires processes that are gone although nobody said so, or that were sampled once more after their end was
// announced. Without it the table would keep them until their pids are used again.
func (a *Agent) sweep() {
	// First: who comes after the listing is not in it.
	known := fold.Get(a.owner, func(s *fold.State) []*fold.Process { return slices.Collect(maps.Values(s.Table)) })
	running, err := a.services.Root.PIDs()
	if err != nil {
		a.services.Log.Warn("cannot look for processes that ended", "err", err)
		return
	}
	a.owner.Do(func(s *fold.State) {
		for _, p := range known {
			if _, ok := slices.BinarySearch(running, p.PID); !ok {
				s.Retire(p)
			}
		}
	})
}

// Choose adds a process to those that are sampled, if the kernel side chooses. A process that finds no room is counted
// (Stats.ProcessesRefused), and is no error: the others are sampled.
func (a *Agent) Choose(pid int) error {
	err := a.services.Objects.Pids.Put(uint32(pid), uint8(1))
	if errors.Is(err, unix.E2BIG) {
		a.refused.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("choose process %d: %w", pid, err)
	}
	return nil
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
