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

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// watch attaches the programs that follow processes: exec, fork, exit.
func (a *Agent) watch() error {
	for name, prog := range map[string]*ebpf.Program{
		"exec": a.services.Objects.ProcessExec, "fork": a.services.Objects.ProcessFork,
		"exit": a.services.Objects.ProcessExit,
	} {
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return fmt.Errorf("follow processes (%s): %w", name, err)
		}
		a.links = append(a.links, l)
	}
	return nil
}

// discoverDeadline bounds how long New waits for the VMs that run already; attaching goes on after
// it.
const discoverDeadline = time.Second

// discover attaches to the VMs that run already. Other processes are looked at when they are first
// sampled.
func (a *Agent) discover(ctx context.Context) {
	a.services.Resolver.Wait(ctx, fold.Targets(a.adopt(a.withVM(ctx))), discoverDeadline)
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

// sweep retires processes that are gone although nobody said so, or that were sampled once more
// after their end was announced. Without it the table would keep them until their pids are used
// again.
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

// Choose adds a process to those that are sampled, if the kernel side chooses. A process that finds
// no room is counted (Stats.ProcessesRefused), and is no error: the others are sampled.
func (a *Agent) Choose(pid int) error {
	err := a.services.Objects.Pids.Put(uint32(pid), uint8(1))
	if errors.Is(err, unix.E2BIG) {
		a.refused.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("choose process %d: %w", pid, err)
	}
	for one := range implementing[source.Chooser](&a.sources) {
		if err := one.Follow(); err != nil {
			return fmt.Errorf("choose process %d: %w", pid, err)
		}
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
