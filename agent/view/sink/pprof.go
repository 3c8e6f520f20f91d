package sink

import (
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Pprof converts a window. Samples of time have the values samples/count and cpu/nanoseconds; calls
// have calls/count, which is the default if there are any. A window of both has all three, and
// zeros where they do not apply. If it was counted how often contexts are entered, there is also
// entries/count. It fails if a value does not fit into 63 bits.
//
// What has names is marked so, so that pprof does not try again with files that may have changed
// since. A file in which a function has no name is not, so that pprof looks for a file of the same
// build id with more names. Methods inlined into each other are lines of one location, innermost
// first. The first mapping, which pprof takes for the main program, is the executable of the
// process that a reader most likely cares for: the busiest one with a managed runtime.
//
// An edge of a call graph is a stack of two frames: the callee, and the caller with the line of the
// call. Its labels engine and basis say where it comes from, stride and samples at which rate.
// Weights are rounded so that their sum stays; the metadata counts edges that are left out for
// weighing too little.
//
// Samples whose context is not certain carry the label context: ambiguous, fitted or unplaced. The
// metadata has the rest for each process of which not every stack was walked.
//
// Events have the values of their kind (profile.EventKind.Values), then events/count: how many
// observed events these were estimated from. They are rounded so that their sums stay. What
// profile.EventLabels says are labels; a class is no frame of the stack, but go tool pprof
// -tagleaf=class makes it one. The metadata says how the values were obtained.
//
// The samples of one thread share their label maps, and so do those of one call graph.
//
// What has the same content has the same sample types, whether anything was sampled or not, so that
// windows can be merged. Pprof fails if content has events and something else than calls: these are
// files of their own, see Kinds.
func Pprof(p *profile.Profile, content Content) (*pprof.Profile, error) {
	b := newPprofBuilder(content)
	if err := b.add(p); err != nil {
		return nil, err
	}
	return b.finish()
}

// add appends what the content has of one window.
func (b *pprofBuilder) add(p *profile.Profile) error {
	if err := b.content.check(); err != nil {
		return err
	}
	b.period = p.Period
	for _, proc := range p.Processes {
		if err := b.process(p, proc); err != nil {
			return fmt.Errorf("convert process %d: %w", proc.PID, err)
		}
	}
	if b.content&Slow != 0 {
		if err := b.slow(p); err != nil {
			return fmt.Errorf("convert slow calls: %w", err)
		}
	}
	b.accounts.add(p, b.content, b.window)
	return nil
}

// finish returns the profile of all that was added.
func (b *pprofBuilder) finish() (*pprof.Profile, error) {
	a := &b.accounts
	b.profile.PeriodType = &pprof.ValueType{Type: stored.TypeCPU, Unit: stored.UnitTime}
	b.profile.Period = b.period.Nanoseconds()
	if b.content == CallCounts {
		// How many calls one sampled call stands for is not known.
		b.profile.PeriodType, b.profile.Period = &pprof.ValueType{Type: stored.TypeCalls, Unit: stored.UnitCount}, 1
	}
	if kind, ok := b.content.Events(); ok {
		b.profile.PeriodType, b.profile.Period = eventPeriod(kind)
	}
	b.profile.DurationNanos = a.duration().Nanoseconds()
	if !a.start.IsZero() {
		b.profile.TimeNanos = a.start.UnixNano()
	}
	if main := a.programs.busiest(); main.File != "" {
		b.first(b.mapping(main))
	}
	b.describeMappings()
	if err := a.complete().Store(b.profile); err != nil {
		return nil, err
	}
	if err := b.profile.CheckValid(); err != nil {
		return nil, fmt.Errorf("check pprof profile: %w", err)
	}
	return b.profile, nil
}

// process appends what the content has of one process.
func (b *pprofBuilder) process(p *profile.Profile, proc *profile.Process) error {
	kind, ofEvents := b.content.Events()
	for _, e := range proc.Events {
		if !ofEvents || e.Kind != kind {
			continue
		}
		if err := b.events(proc, e); err != nil {
			return fmt.Errorf("convert %v events: %w", kind, err)
		}
	}
	if threads := unitContent(p.Unit); !ofEvents && b.content&threads != 0 {
		for _, thread := range proc.Threads {
			if err := b.thread(proc, thread, threads); err != nil {
				return fmt.Errorf("convert thread %d: %w", thread.TID, err)
			}
		}
	}
	if b.content&CallCounts != 0 {
		for _, c := range proc.Calls {
			if err := b.calls(proc, c); err != nil {
				return fmt.Errorf("convert calls of engine %s: %w", c.Engine, err)
			}
		}
	}
	return nil
}

// unitContent is what the trees of threads count.
func unitContent(u profile.Unit) Content {
	if u == profile.CallCounts {
		return CallCounts
	}
	return Time
}
