package page

import (
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// A cpuTime adds up the CPU time of guests while they are connected.
type cpuTime struct {
	mu   sync.Mutex
	sum  time.Duration
	last budget.Times // by serial
}

// GuestTime is the CPU time that guests used while they were connected. What a guest used between the last time this
// was asked and its end is missing.
func (e *Engine) GuestTime() time.Duration {
	t := &e.used
	t.mu.Lock()
	defer t.mu.Unlock()
	now, begun := budget.Times{}, budget.Times{}
	e.table.each(func(g *guest) {
		if used, ok := proc.CPUTime(g.peer.id.PID); ok {
			now[g.serial], begun[g.serial] = used, g.before
		}
	})
	if t.last == nil {
		t.last = budget.Times{}
	}
	t.last.Add(begun)
	t.sum += t.last.Until(now)
	t.last = now
	return t.sum
}
