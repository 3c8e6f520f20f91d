package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// guestTimes reads the CPU times of processes that are attached and alive, by the serials of their attachments.
func (a *Agent) guestTimes() budget.Times {
	a.mu.Lock()
	defer a.mu.Unlock()
	times := make(budget.Times)
	for _, p := range a.table {
		serial := p.Attachment.Load()
		if serial == 0 || p.Exited.Load() {
			continue
		}
		if used, ok := proc.CPUTime(p.PID); ok {
			times[serial] = used
		}
	}
	return times
}
