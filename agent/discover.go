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

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
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
	pids := a.opt.PIDs
	if len(pids) == 0 && !a.opt.Filter {
		pids, _ = a.opt.Proc.PIDs()
	}
	var found []*process
	for _, pid := range pids {
		id, err := a.opt.Proc.Identify(pid)
		if err != nil {
			continue
		}
		mapped, err := proc.Call(ctx, a.pool, pid, func() (proc.Maps, error) { return a.opt.Proc.Maps(pid, proc.Executable) })
		if err != nil || findLibrary(mapped) == nil {
			continue
		}
		p := newProcess(id, false)
		a.mu.Lock()
		a.table[pid] = p
		a.mu.Unlock()
		a.names.submit(p)
		found = append(found, p)
	}
	a.names.wait(ctx, found, discoverDeadline)
}

// sweep retires processes that are gone although nobody said so, or that were sampled once more after their end was
// told. Without it the table would keep them until their pids are used again.
func (a *Agent) sweep() {
	a.mu.Lock()
	known := slices.Collect(maps.Values(a.table)) // first: who comes after the listing is not in it
	a.mu.Unlock()
	running, err := a.opt.Proc.PIDs()
	if err != nil {
		a.log.Warn("cannot look for processes that ended", "err", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range known {
		if _, ok := slices.BinarySearch(running, p.pid); !ok {
			a.retire(p)
		}
	}
}

// checkPIDs fails if a chosen process does not run.
func (a *Agent) checkPIDs() error {
	for _, pid := range a.opt.PIDs {
		_, err := a.opt.Proc.Identify(pid)
		if errors.Is(err, proc.ErrGone) {
			return fmt.Errorf("no process with pid %d: choose a running one (pgrep java lists JVMs)", pid)
		}
		if err != nil {
			return fmt.Errorf("look at process %d: %w", pid, err)
		}
	}
	return nil
}
