package events

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A firstLook is the one at the virtual threads of a process that already waited when probes came to
// it.
type firstLook struct {
	done  bool
	fails int    // looks that failed
	why   string // why the last one did
}

// errNoStacks says that virtual threads wait, and that none of their stacks could be read.
var errNoStacks = errors.New("their stacks could not be read")

// finished reports whether a look succeeded.
func (s *firstLook) finished() bool { return s != nil && s.done }

// note records how a look ended.
func (s *firstLook) note(err error) {
	if s.done = err == nil; !s.done {
		s.fails++
		s.why = err.Error()
	}
}

// lack is why waits may be missing; "" if none are.
func (s *firstLook) lack() string {
	if s == nil || s.fails == 0 || s.done {
		return ""
	}
	return seedingFailed + ": " + s.why
}

// toSeed returns the processes to whose virtual threads a first look is to be taken now, and their
// plans. One that failed is repeated a few times.
func (e *Source) toSeed() map[*guest.Process][]probes.VirtualPlan {
	found, plans := map[*guest.Process][]probes.VirtualPlan{}, e.VirtualPlans()
	e.services.Owner.Do(func(*fold.State) {
		maps.DeleteFunc(e.seeded, func(p *guest.Process, _ *firstLook) bool { return p.Exited.Load() })
		for _, of := range plans {
			s := e.seeded[of.Process]
			if of.Sliced != 0 || of.Turn != 1 || s != nil && (s.done || s.fails >= mostFailures) {
				continue
			}
			if s == nil {
				e.seeded[of.Process] = &firstLook{}
			}
			found[of.Process] = append(found[of.Process], of)
		}
	})
	return found
}

// seedVirtual has the kernel side know of the waits that had begun before a process was observed.
func (e *Source) seedVirtual(ctx context.Context) {
	for p, of := range e.toSeed() {
		err := e.seedProcess(ctx, p, of)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.services.Log.Debug("cannot see which virtual threads wait", "pid", p.PID, "err", err)
		}
		e.services.Owner.Do(func(*fold.State) {
			if s := e.seeded[p]; s != nil {
				s.note(err)
			}
		})
	}
}

// seedProcess does that for one process. It fails if nothing is known of its waits.
func (e *Source) seedProcess(ctx context.Context, p *guest.Process, plans []probes.VirtualPlan) error {
	now := proc.Monotonic()
	look, err := e.virtualWaiting(ctx, p, mostSeeded, mostSeeded)
	if err != nil {
		return err
	}
	late, read := 0., 0
	for i := range look.waiting {
		v := &look.waiting[i]
		if v.stack == nil {
			continue
		}
		read++
		for j := range plans {
			if plans[j].Kind == v.kind() && e.seedWait(&plans[j], v, now) {
				late += v.weight
			}
		}
	}
	if read == 0 && len(look.waiting) > 0 {
		return errNoStacks
	}
	e.locks.noteLate(p, now, int(late), true)
	return nil
}

// seedWait has the kernel side know of one wait, since now. It returns false if it knows one, or
// has no room.
func (e *Source) seedWait(of *probes.VirtualPlan, v *waitingVirtual, now time.Duration) bool {
	key := bpf.VirtualThread{Serial: of.Process.Attachment.Load(), Id: v.id}
	frozen := bpf.UnmountedWait{Begin: uint64(now), Every: uint32(max(v.weight+0.5, 1)), Probe: of.Cookie, Turn: of.Turn,
		Kind: bpf.UnmountedParked}
	if of.Kind == probes.VirtualBlocks {
		frozen.Kind = bpf.UnmountedMonitor
	}
	if e.Programs.UnmountedWaits.Update(&key, &frozen, ebpf.UpdateNoExist) != nil {
		return false
	}
	event, epoch := v.event(of.Process)
	event.Every = frozen.Every
	kept := false
	e.services.Owner.Do(func(s *fold.State) {
		if p := s.Table[of.Process.PID]; p != nil && p.Process == of.Process &&
			!e.surveys[of.Process].coversKind(of.Kind) {
			kept = e.virtuals.keep(s, virtualThread{p, v.id}, &virtualWait{event: event, epoch: epoch,
				begin: frozen.Begin})
		}
	})
	return kept
}
