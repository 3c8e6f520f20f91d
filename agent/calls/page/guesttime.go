package page

import (
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// A cpuTime adds up the CPU time of guests while they are connected.
type cpuTime struct {
	mu   sync.Mutex
	sum  time.Duration
	last map[uint32]time.Duration // by serial
}

// GuestTime is the CPU time that guests used while they were connected. What a guest used between the last time this
// was asked and its end is missing.
func (e *Engine) GuestTime() time.Duration {
	t := &e.used
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[uint32]time.Duration{}
	e.table.each(func(g *guest) {
		now, ok := proc.CPUTime(g.peer.id.PID)
		if !ok {
			return
		}
		seen[g.serial] = now
		before, ok := t.last[g.serial]
		if !ok {
			before = g.before
		}
		t.sum += max(now-before, 0)
	})
	t.last = seen
	return t.sum
}
