// Package cputime has the CPU time of a profile add up to what the scheduler counted: samples
// divide it.
//
// A sample stands for one period of the clock, but ticks miss a part of the run time of threads
// that sleep often:
//
//   - If the CPU is idle, the scheduler counts from the wake-up on, in the timer's interrupt, and
//     not from when the thread comes to the CPU. What lies between, some 8 µs on a small virtual
//     machine, is measured (bpf/sample/runtime.bpf.c). It is the row [waking], but for the part of
//     it for which there are samples: ticks that were due while interrupts were off come at the end
//     of the switch (finish_task_switch).
//   - A thread that waits for a time sets the timer of its CPU, which takes some 8 µs where the
//     host has to do it, and only if no tick is due before the wait ends: so no tick sees it. It is
//     measured likewise, and a part of [waking].
//   - When a timer wakes a CPU, the interrupt comes late, by 10 to 30 µs there, and the kernel
//     handles all timers at once that are due by then. So no tick comes in the first microseconds
//     of the thread that was woken, whatever the phase of the clock, and ticks that are due at its
//     end come when it sleeps again. The thread's own code runs in that part. Its samples stand for
//     it: what the thread does later is all that is known of it.
//   - A tick takes time from the thread that it interrupts, and other ticks are lost by the
//     machine. Both can happen anywhere in the thread's run time, so its samples stand for them.
package cputime

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Source reads the run times of threads at the ends of windows.
type Source struct {
	source.Passive
	*source.Services
	kernel  *bpf.RunTimes
	refused error // why kernel is nil
	stopped atomic.Bool
	missing atomic.Uint64 // threads that had begun to end when the recording did, and have no record
}

// Open loads the programs that read run times. Where the kernel refuses them, profiles say that
// their CPU time is counted in samples.
func Open(services *source.Services) *Source {
	s := &Source{Services: services}
	if s.kernel, s.refused = services.Objects.LoadRunTimes(); s.refused != nil {
		services.Log.Warn("CPU time is counted in samples", "err", s.refused)
	}
	return s
}

// Start implements source.Source.
func (s *Source) Start(context.Context) error { return s.Follow() }

// Follow implements source.Chooser: what processes have run before they are chosen does not count.
func (s *Source) Follow() error {
	take, err := s.read()
	if err != nil {
		return err
	}
	return s.Owner.Do(take)
}

// Stop implements source.Source: windows that are still open end now.
func (s *Source) Stop() error {
	if s.kernel == nil {
		return nil
	}
	s.awaitEnds()
	err := s.Follow()
	s.stopped.Store(true)
	return err
}

// endsWait bounds how long Stop waits for threads that have begun to end. On a busy machine they
// may wait for a CPU.
const endsWait = 4 * time.Second

// awaitEnds waits until the threads that have begun to end will not run again, and have records,
// which are read before the windows close.
func (s *Source) awaitEnds() {
	const look = 5 * time.Millisecond
	ended, recorded, err := s.kernel.Ended()
	for begin := time.Now(); err == nil && recorded < ended; _, recorded, err = s.kernel.Ended() {
		if time.Since(begin) >= endsWait {
			s.missing.Store(ended - recorded)
			return
		}
		time.Sleep(look)
	}
	if err != nil {
		s.Log.Warn("cannot wait for the run times of threads that have ended", "err", err)
	}
}

// Close implements source.Source.
func (s *Source) Close() error {
	if s.kernel == nil {
		return nil
	}
	return s.kernel.Close()
}

// read reads the run times of all threads, and returns what takes them.
func (s *Source) read() (take func(*fold.State), err error) {
	if s.kernel == nil || s.stopped.Load() {
		return func(*fold.State) {}, nil
	}
	if err := s.Owner.Do((*fold.State).BeginReading); err != nil {
		return nil, fmt.Errorf("begin to read run times: %w", err)
	}
	began := proc.SinceBoot()
	threads, err := s.kernel.All()
	if err != nil {
		s.Owner.Do(func(state *fold.State) { state.ReadRunTimes(began, nil) })
		return nil, err
	}
	return func(state *fold.State) { state.ReadRunTimes(began, threads) }, nil
}

// Count implements source.Counter: a window that opens or closes then has what threads ran in it.
func (s *Source) Count() func(*fold.State) any {
	take, err := s.read()
	if err != nil {
		s.Log.Error("cannot read how long threads have run", "err", err)
		return func(*fold.State) any { return nil }
	}
	return func(state *fold.State) any {
		take(state)
		return nil
	}
}

// Handle takes the record of a thread that has ended.
func Handle(s *fold.State, raw []byte) {
	s.Events++
	if e, err := bpf.DecodeThreadEnd(raw); err == nil {
		s.ThreadEnded(e)
	}
}

// KernelMaps implements source.Mapper.
func (s *Source) KernelMaps() []any {
	if s.kernel == nil {
		return nil
	}
	return []any{s.kernel.Maps()}
}

// Fill implements source.Filler.
func (s *Source) Fill(_ context.Context, w *source.Closed, p *profile.Profile) source.Part {
	if s.kernel == nil {
		p.Comments = append(p.Comments, fmt.Sprintf("CPU time is the number of samples times their period, which is "+
			"too low for threads that sleep often: %v", s.refused))
		return source.Part{}
	}
	if n := s.missing.Load(); n > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("the CPU time of %d threads is missing: they were exiting "+
			"when the recording ended, and got no CPU for %v", n, endsWait))
	}
	var lives []fold.Life // in the order of the profile
	programs := map[fold.Life][]*profile.Process{}
	finished := false
	return source.Part{
		Process: func(of *fold.Process, to *profile.Process) {
			life := lifeOf(of, w.RunTimes)
			if finished { // it was chosen, and has no samples
				s.divide(p.Period, []fold.Life{life}, map[fold.Life][]*profile.Process{life: {to}},
					map[fold.Life]*fold.LifeTime{life: w.RunTimes[life]}, w.Unsampled)
				return
			}
			if programs[life] == nil {
				lives = append(lives, life)
			}
			programs[life] = append(programs[life], to)
		},
		Finish: func() {
			finished = true
			s.divide(p.Period, lives, programs, w.RunTimes, w.Unsampled)
		},
	}
}

// divide divides the run times of processes among their samples.
func (s *Source) divide(
	period time.Duration, lives []fold.Life, programs map[fold.Life][]*profile.Process,
	times map[fold.Life]*fold.LifeTime, unsampled []source.Unsampled,
) {
	d := &division{period: period, tick: s.TickTime(), usual: usualLatency(breakpoint.Virtual()), unsampled: unsampled}
	for _, life := range lives {
		d.add(programs[life], times[life])
	}
	for life, l := range times {
		if l == nil || programs[life] != nil {
			continue
		}
		for _, r := range l.Threads {
			d.addOther(r)
		}
		d.addOther(l.Rest)
	}
	d.finish()
}

// lifeOf is the life of a process. One that was found in /proc, and has no samples, is known by its
// start in ticks of the clock.
func lifeOf(p *fold.Process, times map[fold.Life]*fold.LifeTime) fold.Life {
	if !p.Precise {
		for life := range times {
			if life.PID == p.PID && (proc.Identity{Start: life.Start}).Ticks() == p.ID.Ticks() {
				return life
			}
		}
	}
	return fold.Life{PID: p.PID, Start: p.ID.Start}
}
