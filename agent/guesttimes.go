package agent

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// guestTimes are the CPU times of guests that are attached and alive, by the serials of their attachments.
type guestTimes map[uint32]time.Duration

func (a *Agent) guestTimes() guestTimes {
	a.mu.Lock()
	defer a.mu.Unlock()
	times := make(guestTimes)
	for _, p := range a.table {
		serial := p.attachment.Load()
		if serial == 0 || p.exited.Load() {
			continue
		}
		if used, ok := proc.CPUTime(p.pid); ok {
			times[serial] = used
		}
	}
	return times
}

// until is what the guests have used until later, all together. What they had used before they were attached does not count.
func (t guestTimes) until(later guestTimes) (sum time.Duration) {
	for serial, used := range later {
		if before, ok := t[serial]; ok && used > before {
			sum += used - before
		}
	}
	return sum
}

// lacks says whether there are guests later that are not known yet.
func (t guestTimes) lacks(later guestTimes) bool {
	for serial := range later {
		if _, ok := t[serial]; !ok {
			return true
		}
	}
	return false
}

// add takes guests over that are new.
func (t guestTimes) add(later guestTimes) {
	for serial, used := range later {
		if _, ok := t[serial]; !ok {
			t[serial] = used
		}
	}
}
