package httpd

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

const (
	// span is how far back the pages look.
	span = time.Minute
	// maxWindows bounds the memory held, should windows be much shorter than expected.
	maxWindows = 60
)

// recent holds the last windows, about a minute of them. The zero value is empty. Windows are
// immutable and shared with others that keep them.
type recent struct {
	mu      sync.Mutex
	windows []*profile.Profile // oldest first
	seen    uint64             // windows ever added
}

func (r *recent) add(p *profile.Profile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	r.windows = append(r.windows, p)
	var held time.Duration
	for i := len(r.windows) - 1; i >= 0; i-- {
		if held >= span || len(r.windows)-i > maxWindows {
			// A copy, so that what is left out can be freed.
			r.windows = slices.Clone(r.windows[i+1:])
			break
		}
		held += r.windows[i].Duration
	}
}

// last returns the windows held, oldest first, and a number that changes when they do. The caller
// must not change the slice.
func (r *recent) last() ([]*profile.Profile, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.windows), r.seen
}

// unnamed is the name of a process that ended before it could be asked for it.
const unnamed = "[unknown]"

// A busyProcess is a process with what it used in some windows.
type busyProcess struct {
	PID      int
	Name, VM string
	Amount   float64
	Part     string // how much of the time it was observed, if that is not all of it
}

// busiest returns the n processes that used most in windows, the busiest first, and none that used
// nothing.
func busiest(windows []*profile.Profile, v *view, n int) []busyProcess {
	// A process id that was reused within the minute is another process.
	type identity struct {
		pid  int
		comm string
	}
	index := make(map[identity]int)
	var all []busyProcess
	var parts []profile.Coverage
	for _, p := range windows {
		for _, proc := range p.Processes {
			id := identity{proc.PID, proc.Comm}
			i, ok := index[id]
			if !ok {
				i = len(all)
				index[id] = i
				all = append(all, busyProcess{PID: proc.PID, Name: cmp.Or(proc.Comm, unnamed), VM: proc.VM})
				parts = append(parts, profile.Coverage{})
			}
			all[i].Amount += v.amount(p, proc)
			v.cover(&parts[i], proc)
		}
	}
	for i := range parts {
		if parts[i].Partial() {
			all[i].Part = fmt.Sprintf("observed %s of the time", stored.SharePercent(parts[i].Share()))
		}
	}
	all = slices.DeleteFunc(all, func(p busyProcess) bool { return p.Amount <= 0 })
	slices.SortFunc(all, func(a, b busyProcess) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.PID, b.PID))
	})
	return all[:min(n, len(all))]
}
