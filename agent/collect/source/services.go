package source

import (
	"context"
	"log/slog"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Services are what an agent does for its sources.
type Services struct {
	Owner       *fold.Owner // owner of what is known of processes and windows
	Resolver    *guest.Resolver
	Objects     *bpf.Objects
	Pool        *proc.Pool     // pool for reads of targets
	Libraries   *proc.Pool     // pool for reads of libraries, and for attaching to them
	Watcher     *watch.Watcher // watcher that all share that set hardware breakpoints
	Breakpoints breakpoint.Policy
	Root        proc.Root
	Log         *slog.Logger
	Period      time.Duration // the CPU time that one sample stands for
	Filter      bool          // the kernel side chooses processes
	KernelTicks bool          // samples are taken in interrupts that come anyway

	// Flush returns when every record that was in the ring at the call has been handled.
	Flush func(context.Context) error
	// Refusal adds the remedy to an error of loading programs.
	Refusal func(error) error
}

// Wanted reports whether the kernel side samples a process.
func (s *Services) Wanted(pid int) bool {
	if !s.Filter {
		return true
	}
	var one uint8
	return s.Objects.Pids.Lookup(uint32(pid), &one) == nil
}

// interruption is what a tick takes of a guest in addition to the program that it runs. On bare
// metal it is less; on a small virtual machine, 999 ticks a second take 1.5% of a CPU (make bench).
const interruption = 12 * time.Microsecond

// TickTime is what a tick takes of a guest's CPU time.
func (s *Services) TickTime() time.Duration {
	took := interruption
	if s.KernelTicks {
		took = 0
	}
	c, err := s.Objects.ReadCounts()
	if runs := c[bpf.SamplesAttempted]; err == nil && runs > 0 {
		took += time.Duration(c[bpf.NsTotal] / runs)
	}
	return took
}

// ListenFailed counts a panic over breakpoints in a process, for those who know it by its identity.
func (s *Services) ListenFailed(id proc.Identity, err error) {
	p := fold.Get(s.Owner, func(state *fold.State) *fold.Process { return state.Table[id.PID] })
	if p != nil && p.Identity().Same(id) {
		s.Resolver.Failed(guest.StageListen, p.Process, err)
	} else {
		s.Resolver.CountFailure(guest.StageListen)
	}
}

// Busiest returns the n processes with VMs that were busiest lately: see fold.State.Busiest.
func (s *Services) Busiest(n int, fade float64, interval time.Duration) []fold.Busy {
	return fold.Get(s.Owner, func(state *fold.State) []fold.Busy { return state.Busiest(n, fade, interval) })
}

// Process is the process of a worker's, nil if it is gone.
func (s *Services) Process(t *guest.Process) *fold.Process {
	return fold.Get(s.Owner, func(state *fold.State) *fold.Process { return state.Lookup(t) })
}
