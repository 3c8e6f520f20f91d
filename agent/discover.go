package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
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
			return fmt.Errorf("no process with pid %d: select a running process (pgrep -a 'java|python' lists some)", pid)
		}
		if err != nil {
			return fmt.Errorf("look at process %d: %w", pid, err)
		}
	}
	return nil
}

// Pauses of seek: a VM that starts is found early in its life, and other processes cost next to
// nothing.
const (
	seekInterval  = 100 * time.Millisecond // while no VM is attached
	alertInterval = time.Second            // while one is

	// A process without a VM is looked at again after this part of the time for which it has run
	// its program, one part in so many, and after longestGlance at the latest.
	glanceShare   = 4
	longestGlance = 10 * time.Second
)

// looks are when processes were last looked at in vain. Any goroutine may use them.
type looks struct {
	mu sync.Mutex
	of map[int]look // looks by pid
}

// A look is at one process. Times are of CLOCK_MONOTONIC.
type look struct {
	start uint64        // start of the process, as in proc.Stat; 0 if it is not known yet
	since time.Duration // when its program began, or earlier
	next  time.Duration // it is not looked at before
}

// due returns those of these processes, which are all there are, that may be looked at now.
func (l *looks) due(now time.Duration, pids []int) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make(map[int]look, len(pids))
	due := make([]int, 0, len(pids))
	for _, pid := range pids {
		of, ok := l.of[pid]
		if ok {
			kept[pid] = of
		}
		if now >= of.next {
			due = append(due, pid)
		}
	}
	l.of = kept
	return due
}

// looked records that a process was looked at.
func (l *looks) looked(now time.Duration, pid int, stat proc.Stat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.of[pid]
	if !ok || of.start != 0 && of.start != stat.StartTicks { // its pid is used again
		of = look{since: now - stat.Identity().Age()}
	}
	of.start = stat.StartTicks
	of.next = now + min((now-of.since)/glanceShare, longestGlance)
	if stat.Kernel() {
		of.next = math.MaxInt64
	}
	l.of[pid] = of
}

// executed records that a process runs another program from now on.
func (l *looks) executed(now time.Duration, pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[int]look{}
	}
	l.of[pid] = look{since: now}
}

// seek is discover over and over, until ctx ends: for an agent that does not sample, so that
// nothing else leads it to VMs that start later.
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
		// A process that maps a VM has executed its last program. But if the record of that exec
		// were handled after the process was adopted, the process would be retired as the program
		// before.
		if err := a.flush(ctx); err != nil {
			return
		}
		a.adopt(found)
	}
}

// withVM returns those of the chosen processes that map a VM which is not attached, or what may
// have a probe whose values are wanted. It leaves out those that were looked at a moment ago.
func (a *Agent) withVM(ctx context.Context) (found []proc.Identity) {
	for _, pid := range a.looks.due(monotonic(), a.candidates()) {
		stat, err := a.services.Root.Stat(pid)
		if err != nil {
			continue
		}
		id := stat.Identity()
		a.looks.looked(monotonic(), pid, stat)
		if stat.Kernel() {
			continue
		}
		mapped, err := proc.Call(ctx, a.services.Pool, pid, func() (proc.Maps, error) {
			a.services.Resolver.Reach(guest.StageDiscover, pid)
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

// candidates are the processes in which a VM may be that is not attached, and is not to be left
// alone for now: the chosen ones and what they started, or all.
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
