package events

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// What is noted of a process is forgotten when it ends, and nothing is noted after that.
func TestSeedingOfEnded(t *testing.T) {
	l := &lockWaits{seeded: map[seeding]struct{}{}}
	first := seeding{guest.NewProcess(proc.Identity{PID: 1}), &fold.Coverage{}}
	if !l.firstSeeding(first) || l.firstSeeding(first) {
		t.Error("a process is not to be asked exactly once")
	}
	first.process.Exited.Store(true)
	l.leave(first.process)
	if l.firstSeeding(first) || len(l.seeded) != 0 {
		t.Errorf("%d notes of a process that has ended", len(l.seeded))
	}
}
