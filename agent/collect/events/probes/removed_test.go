package probes

import (
	"context"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// A plan that is removed keeps no process, and is not adopted while its probes are still being
// detached.
func TestRemovedPlan(t *testing.T) {
	of, own := &attachedPlan{}, &attachedPlan{process: guest.NewProcess(proc.Identity{PID: 1}), cookies: []uint32{1}}
	own.all, own.users = of, []*guest.Process{own.process}
	e := &Probes{plans: []*attachedPlan{of}, cookies: newCookies()}
	flushed := 0
	e.config.Flush = func(context.Context) error {
		flushed++
		e.adopt([]*attachedPlan{own}) // as the others' plans are handed over just now
		return nil
	}
	e.noteUser(e.plans, guest.NewProcess(proc.Identity{PID: 2}), "libjvm.so")
	if len(of.users) != 1 {
		t.Fatalf("%d users of a plan", len(of.users))
	}
	both := []*attachedPlan{of, own}
	for range 2 {
		e.remove(t.Context(), both)
	}
	e.noteUser(both, guest.NewProcess(proc.Identity{PID: 3}), "libjvm.so")
	if len(e.plans) != 0 || len(of.users) != 0 || len(own.users) != 0 || flushed != 1 {
		t.Errorf("removed %d times, %d plans are left; %d and %d processes use them", flushed, len(e.plans),
			len(of.users), len(own.users))
	}
}
