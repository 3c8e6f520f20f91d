package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Probes in a file are in every process that maps it. Anybody may do that and call what is in the
// file, so what such hits cost must not be what the probes of others may cost. Where the kernel can
// confine probes to a process, each process gets probes of its own: from the start if processes
// were chosen, as then no other one shall pass any, and otherwise when somebody passes too many.
const (
	// maxApart bounds the processes of a file that have probes of their own: the kernel looks at
	// all of these at each hit.
	maxApart = 32
	// manyStrange is how many hits a second of a process that is not observed are too many. A JVM
	// that starts has fewer until it is attached.
	manyStrange = 5000
	// manyThinned is N if one in N hits is recorded and that is too few for a process whose hits
	// are not the many.
	manyThinned = 4
	// maxUnattached bounds the processes that map such a file and to whose VM the agent is not
	// attached.
	maxUnattached = 4096
	// separatingTime bounds for how long plans that are too expensive are left as they are while
	// processes get plans of their own.
	separatingTime = 3 * time.Second
)

// A fileProbes is the plans of a file, for all processes that map it.
type fileProbes struct {
	key   symbolize.FileKey
	plans []*attachedPlan

	// Probes.mu guards these.
	apart bool            // each process has plans of its own
	hand  bool            // not yet: heirs wait until all processes have
	heirs []*attachedPlan // attached plans of processes that observe nothing yet
	began time.Duration   // CLOCK_MONOTONIC: since when hand is set
}

// An ownKey is a file of a process.
type ownKey struct {
	file    symbolize.FileKey
	process *guest.Process
}

// newOwn returns the keeper of plans that observe one process.
func (e *Probes) newOwn(pool *proc.Pool) *library.Keeper[ownKey, *guest.Process, eventLibrary] {
	return library.New[ownKey, *guest.Process](pool, library.Kind[eventLibrary]{
		Attach: func(lib eventLibrary, f *os.File) (eventLibrary, error) {
			plans, lacks := e.attach(lib.plans, f)
			return eventLibrary{plans: plans, lacks: lacks, of: lib.of}, nil
		},
		Attached: func(lib eventLibrary) {
			if !e.await(lib) {
				e.adopt(lib.plans)
			}
		},
		Detach: func(ctx context.Context, lib eventLibrary) { e.remove(ctx, lib.plans) },
	})
}

// await keeps the plans of a process for later if those of the file still observe it.
func (e *Probes) await(lib eventLibrary) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lib.of.hand {
		lib.of.heirs = append(lib.of.heirs, lib.plans...)
	}
	return lib.of.hand
}

// isApart reports whether each process that maps a file has plans of its own.
func (e *Probes) isApart(of *fileProbes) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return of != nil && of.apart
}

// attachOwn attaches plans that observe p alone. The error is library.ErrAttaching while that takes
// long.
func (e *Probes) attachOwn(p *guest.Process, f *os.File, of *fileProbes) (eventLibrary, error) {
	return e.own.Use(p, p.PID, ownKey{of.key, p}, f, func(own *eventLibrary) (bool, error) {
		own.of = of
		for _, plan := range of.plans {
			own.plans = append(own.plans, &attachedPlan{
				eventPlan: plan.eventPlan, found: plan.found, process: p, all: plan, users: []*guest.Process{p},
				library: plan.library, every: 1,
			})
		}
		return len(own.plans) > 0, nil
	})
}

// separate begins to give each user of a file plans of its own, if there are at least that many;
// why is for the log. It reports whether that is under way. mu is held.
func (e *Probes) separate(of *fileProbes, least int, why string) bool {
	if of == nil || of.apart {
		return of != nil && of.hand && e.now-of.began < separatingTime
	}
	users := map[*guest.Process]bool{}
	for _, p := range of.plans {
		for _, user := range p.users {
			if user.Attachment.Load() != 0 {
				users[user] = true
			} else if len(e.unattached) < maxUnattached { // it may be no VM at all
				e.unattached[user] = of
			}
		}
	}
	if len(users) < least || len(users) > maxApart || e.own == nil || !e.uprobes.FiltersByPID() {
		return false
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", of.plans[0].file.Fd()))
	if err != nil {
		return false
	}
	of.apart, of.hand, of.began = true, true, e.now
	e.config.Log.Warn("each process gets probes of its own", "library", of.plans[0].library, "processes", len(users),
		"why", why)
	e.separating.Go(func() {
		defer file.Close()
		for user := range users {
			if _, err := e.attachOwn(user, file, of); err != nil && !errors.Is(err, library.ErrAttaching) {
				e.config.Log.Warn("events of a process are not recorded", "pid", user.PID, "err", err)
			}
			if user.Exited.Load() {
				e.own.Leave(user)
			}
		}
		e.handOver(of)
	})
	return true
}

// handOver lets the plans of processes observe, and removes those of the file.
func (e *Probes) handOver(of *fileProbes) {
	e.mu.Lock()
	for _, p := range of.plans {
		p.off = true
		e.apply(p)
	}
	heirs := of.heirs
	of.hand, of.heirs = false, nil
	e.mu.Unlock()
	e.adopt(heirs)
	e.remove(context.Background(), of.plans)
}

// later notes that p gets plans of its own once the agent is attached to its VM: anybody may map
// the library.
func (e *Probes) later(p *guest.Process, of *fileProbes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.unattached) < maxUnattached {
		e.unattached[p] = of
	}
}

// AttachedVM gives p the plans that it was to get once the agent is attached to its VM, whose
// library m is.
func (e *Probes) AttachedVM(p *guest.Process, m *proc.Mapping) {
	e.mu.Lock()
	of := e.unattached[p]
	delete(e.unattached, p)
	wanted := of != nil && of.apart
	e.mu.Unlock()
	if !wanted {
		return
	}
	lib, err := e.config.Resolver.Open(p, m)
	if err == nil {
		defer lib.File.Close()
		_, err = e.attachOwn(p, lib.File, of)
	}
	if err != nil && !errors.Is(err, library.ErrAttaching) {
		e.config.Log.Warn("events of a process are not recorded", "pid", p.PID, "err", err)
	}
}

// crowded gives processes plans of their own if together they pass a plan's probes so often that
// few hits can be recorded, or none all of the time: the one that does it spends its own budget. It
// reports whether that is under way. mu is held.
func (e *Probes) crowded(p *attachedPlan, every int, tooHot error) bool {
	switch {
	case tooHot != nil:
		return e.separate(p.files, 2, tooHot.Error())
	case every > manyThinned:
		return e.separate(p.files, 2, fmt.Sprintf("only one in %d hits of %s could be recorded", every, p.of))
	}
	return false
}

// inherit begins a plan of one process. It goes on with what the plan of the file has observed of
// it; mu is held.
func (p *attachedPlan) inherit() {
	id := p.process.Identity()
	if p.all.off {
		p.turn = p.all.turn
		p.cover.Continue(&p.all.cover, id)
		return
	}
	p.cover.Follow(id, proc.Monotonic())
}

// A strangeTime is a time in which a process that is not observed passed many probes.
type strangeTime struct {
	at   time.Duration // CLOCK_MONOTONIC
	pid  uint32
	note string
}

// maxStrangeTimes bounds those that are kept.
const maxStrangeTimes = 64

// watchStrangers looks for processes that pass many probes and are not observed. Windows have notes
// on them, and those that are observed get probes of their own, which no other process passes. mu
// is held.
func (e *Probes) watchStrangers(passed time.Duration) {
	var pid uint32
	var stranger bpf.Stranger
	seen := map[uint32]uint64{}
	for all := e.Programs.Strangers.Iterate(); all.Next(&pid, &stranger); {
		seen[pid] = stranger.Hits
		hits := stranger.Hits
		if before := e.strangers[pid]; before <= hits { // otherwise it was forgotten, and came back
			hits -= before
		}
		if float64(hits) < manyStrange*passed.Seconds() || e.observes(int(pid)) {
			continue
		}
		name := fmt.Sprintf("process %d", pid)
		if comm, err := e.config.Root.Comm(int(pid)); err == nil {
			name = fmt.Sprintf("%s (pid %d)", comm, pid)
		}
		note := fmt.Sprintf("%s, which is not profiled, passed probes of events %d times in a second; that costs "+
			"nobody else", name,
			int(float64(hits)/passed.Seconds()))
		e.strange = append(e.strange, strangeTime{e.now, pid, note})
		if len(e.strange) > maxStrangeTimes {
			e.strange = slices.Delete(e.strange, 0, 1)
		}
		if at := slices.IndexFunc(e.plans, func(p *attachedPlan) bool {
			return slices.Contains(p.cookies,
				stranger.Probe)
		}); at >= 0 {
			e.separate(e.plans[at].files, 1, note)
		}
	}
	e.strangers = seen
}

// observes reports whether the agent is attached to the VM of a process by now; mu is held.
func (e *Probes) observes(pid int) bool {
	return slices.ContainsFunc(e.plans, func(p *attachedPlan) bool {
		return slices.ContainsFunc(p.users, func(user *guest.Process) bool {
			return user.PID == pid &&
				user.Attachment.Load() != 0
		})
	})
}

// StrangeNotes are the notes on a time, one for each process: the first.
func (e *Probes) StrangeNotes(began, ended time.Duration) (notes []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := map[uint32]bool{}
	for _, s := range e.strange {
		if s.at >= began && s.at <= ended && !seen[s.pid] && len(notes) < maxNamed {
			seen[s.pid] = true
			notes = append(notes, s.note)
		}
	}
	return notes
}
