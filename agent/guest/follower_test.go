package guest

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// What asks for a process after its end keeps nothing of it: a service that starts a process every
// second would fill the memory.
func TestPerProcessAfterEnd(t *testing.T) {
	var k PerProcess[int]
	p := NewProcess(proc.Identity{PID: 1})
	*k.Get(p) = 7
	p.Exited.Store(true)
	if got := *k.Get(p); got != 7 {
		t.Errorf("got %d of a process that ended a moment ago, want 7", got)
	}
	k.Forget(p)
	if got := *k.Get(p); got != 0 || len(k.kept) != 0 {
		t.Errorf("got %d after the end, and %d processes are kept", got, len(k.kept))
	}
}
