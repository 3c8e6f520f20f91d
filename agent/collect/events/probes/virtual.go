package probes

import (
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Kinds of waits of virtual threads.
const (
	VirtualParks  = iota
	VirtualBlocks // for a monitor
	VirtualKinds
)

// VirtualKind is the kind of a wait, which may be for a monitor.
func VirtualKind(monitor bool) int {
	if monitor {
		return VirtualBlocks
	}
	return VirtualParks
}

// lookForVirtual notes whether virtual threads have run in p. It is called by the worker that has
// the process.
func (e *Probes) lookForVirtual(p *guest.Process) {
	g := p.VM()
	if g == nil {
		return
	}
	vm, err := guest.As[vmruntime.VirtualRunner](g)
	if err != nil {
		return
	}
	ran, err := vm.RanVirtualThreads()
	e.config.Resolver.CountRead(err)
	if ran {
		e.virtual.Get(p).Store(true)
	}
}

// RanVirtual reports whether virtual threads have run in p.
func (e *Probes) RanVirtual(p *guest.Process) bool { return e.virtual.Get(p).Load() }

// FollowsVirtual reports whether waits of p's virtual threads are observed.
func (e *Probes) FollowsVirtual(p *guest.Process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.plans, func(plan *attachedPlan) bool {
		return plan.of == VirtualWaits &&
			slices.Contains(plan.users, p)
	})
}

// A VirtualCount is the waits of virtual threads of one VM.
type VirtualCount struct {
	bpf.VirtualCount
	Still uint64 // waits that have begun and not ended
}

// CountVirtual reads the waits of virtual threads of all VMs, by their serials.
func (e *Probes) CountVirtual() map[uint32]VirtualCount {
	counts := map[uint32]VirtualCount{}
	var serial uint32
	var count bpf.VirtualCount
	// A count that changes during this reading is read again at the next window.
	for all := e.Programs.VirtualCounts.Iterate(); all.Next(&serial, &count); {
		counts[serial] = VirtualCount{VirtualCount: count}
	}
	for key, f := range e.Frozen() {
		c := counts[key.Serial]
		c.Still += uint64(f.Every)
		counts[key.Serial] = c
	}
	return counts
}

// forgetFrozen has the kernel side forget the virtual threads that waited when plans were last
// observed in a slice, whose ends were not seen. Otherwise a program with a virtual thread for each
// request would fill the table.
func (e *Probes) forgetFrozen() {
	e.mu.Lock()
	sliced := slices.ContainsFunc(e.plans, func(p *attachedPlan) bool {
		return p.kind == profile.Locks &&
			!p.duty.Always()
	})
	e.mu.Unlock()
	if sliced {
		e.Frozen()
	}
}

// Frozen reads which virtual threads wait. It deletes waits that began before their probes were
// removed and attached again: their ends were not seen, and may never be.
func (e *Probes) Frozen() map[bpf.VirtualThread]bpf.UnmountedWait {
	turns := map[uint32]uint32{}
	e.mu.Lock()
	for _, p := range e.plans {
		for _, cookie := range p.cookies {
			turns[cookie] = p.turn
		}
	}
	e.mu.Unlock()
	known := map[bpf.VirtualThread]bpf.UnmountedWait{}
	var key bpf.VirtualThread
	var f bpf.UnmountedWait
	for all := e.Programs.UnmountedWaits.Iterate(); all.Next(&key, &f); {
		known[key] = f
	}
	maps.DeleteFunc(known, func(key bpf.VirtualThread, f bpf.UnmountedWait) bool {
		old := f.Turn != turns[f.Probe]
		if old {
			e.Programs.UnmountedWaits.Delete(&key) // it may already be gone
		}
		return old
	})
	return known
}

// A VirtualPlan is a plan of waits of virtual threads in one process.
type VirtualPlan struct {
	Process *guest.Process
	Kind    int
	Cover   *fold.Coverage
	Sliced  time.Duration // CLOCK_MONOTONIC: since when it is not observed all the time; 0 if it is
	Cookie  uint32
	Turn    uint32
}

// VirtualPlans returns the plans of waits of virtual threads in processes that have had any.
func (e *Probes) VirtualPlans() (list []VirtualPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, plan := range e.plans {
		parks, monitors := plan.of == VirtualWaits, plan.waits == e.Programs.Entering
		if plan.kind != profile.Locks || plan.idle || !parks && !monitors || len(plan.cookies) == 0 {
			continue
		}
		for _, p := range plan.users {
			if e.RanVirtual(p) && p.Attachment.Load() != 0 {
				of := VirtualPlan{Process: p, Kind: VirtualKind(monitors), Cover: &plan.cover, Cookie: plan.cookies[0],
					Turn: plan.turn}
				if !plan.duty.Always() {
					of.Sliced = plan.slicedAt
				}
				list = append(list, of)
			}
		}
	}
	return list
}

// A LockPlan is a plan of waits for locks as it is observed now.
type LockPlan struct {
	Cover *fold.Coverage
	Waits *ebpf.Map
	Turn  uint16
	Users []*guest.Process
}

// LockPlans returns the plans of waits for locks that are observed all the time.
func (e *Probes) LockPlans() (plans []LockPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.plans {
		if p.waits != nil && e.recording && !p.idle && p.duty.Always() {
			plans = append(plans, LockPlan{&p.cover, p.waits, uint16(p.turn), slices.Clone(p.users)})
		}
	}
	return plans
}
