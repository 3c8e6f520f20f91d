package monitors

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Complete sets the values of the folded contexts. The note describes the base of the estimate, and
// what was not observed; there is none if the process was not watched.
func (m *Enters) Complete(w *fold.Window, p *fold.Process) (note string) {
	m.mu.Lock()
	engine, low := m.engine, m.codeLow[p]
	m.mu.Unlock()
	if engine == nil {
		return ""
	}
	all, sum := engine.Acquisitions(p.Identity(), w.Began, w.Ended)
	if sum.Windows == 0 {
		if missing := sum.missing(); missing != "" {
			return "acquisitions of kind enter in compiled code are not estimated, because no watch had a result: " +
				missing
		}
		return ""
	}
	found, lost := false, 0.
	m.Owner.Do(func(*fold.State) {
		if s := w.Events[p]; s != nil {
			found, lost = true, addEnters(s.ByKind(profile.Locks), all,
				func(at Place) bpf.Frame { return enterFrame(at, low) })
		}
	})
	if !found {
		return ""
	}
	text := fmt.Sprintf(
		"acquisitions of kind enter in compiled code are estimated from %d watches with %d hits of breakpoints, at "+
			"%d places of "+
			"hot code, which used %v of its CPU time; acquisitions that waited also count as spin or block",
		sum.Windows, sum.Hits, sum.Places, sum.Cost.Round(time.Microsecond))
	if missing := sum.missing(); missing != "" {
		text += "; not observed: " + missing
	}
	if lost > 0 {
		text += fmt.Sprintf("; %.0f more have no known context", math.Round(lost))
	}
	return text
}

// missing lists the watches without observations. It is empty if there were none.
func (s Summary) missing() string {
	var parts []string
	if s.Void > 0 {
		parts = append(parts, fmt.Sprintf("%d watches ended early, because code or threads changed or debug "+
			"registers were in use", s.Void))
	}
	if s.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d watches did not fit in the budget", s.Skipped))
	}
	return strings.Join(parts, ", ")
}

// enterFrame returns the frame of a thread at a place, in a VM whose code begins at low.
func enterFrame(p Place, low uint64) bpf.Frame {
	const idBits = 28 // bits of a compile id in a frame (sample.h)
	return bpf.Frame(uint64(bpf.FrameJIT)<<60 | uint64(p.Version&(1<<idBits-1))<<32 | uint64(uint32(p.Address-low)))
}

// addEnters divides acquisitions among their observed contexts, in proportion to how often each was
// observed: among those of the same class at the same place or, if there are none, those at the
// place. It returns how many have no context at all.
func addEnters(r *fold.Events, all []Acquisition, frame func(Place) bpf.Frame) (lost float64) {
	walked := map[bpf.Frame]map[fold.EventKey]uint64{} // how often each context was observed
	for key, sums := range r.Rows {
		leaf := r.Tree.Node(key.Context).Key
		if key.What != enterWhat || leaf.Kind != guest.RawExact {
			continue // from a probe in the VM: the walk began at a call
		}
		if walked[leaf.Frame] == nil {
			walked[leaf.Frame] = map[fold.EventKey]uint64{}
		}
		walked[leaf.Frame][key] = sums.Events
	}
	for _, a := range all {
		contexts := ofClass(walked[frame(a.Place)], a.Class)
		var sum float64
		for _, n := range contexts {
			sum += float64(n)
		}
		if sum == 0 || len(r.Rows)+len(contexts) > fold.MaxEventRows {
			lost += a.Times
			continue
		}
		for key, n := range contexts {
			part := float64(n) / sum
			r.Rows[key] = &fold.EventSums{
				Events: max(n, uint64(math.Round(part*float64(a.Hits)))),
				Values: [profile.MaxEventValues]float64{part * a.Times},
			}
		}
	}
	return lost
}

// ofClass returns the contexts in which objects of a class were observed. If there are none, it
// returns all of them, for that class.
func ofClass(contexts map[fold.EventKey]uint64, class string) map[fold.EventKey]uint64 {
	own, other := map[fold.EventKey]uint64{}, map[fold.EventKey]uint64{}
	for key, n := range contexts {
		if key.Class == class {
			own[key] = n
			continue
		}
		key.Class = class
		other[key] += n
	}
	if len(own) > 0 {
		return own
	}
	return other
}
