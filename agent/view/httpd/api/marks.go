package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
)

const (
	maxMarks      = 500 // marks that are held: the last ones
	maxShownMarks = 200
	// maxGCMarks bounds those of garbage collections, of which there may be one in each window and
	// service.
	maxGCMarks = 300
	// maxStarted and maxStartedPIDs bound what is remembered to know a new start of a service.
	maxStarted, maxStartedPIDs = 500, 32
	// leastLoss is the part of the samples or events of a window whose loss is marked.
	leastLoss = 0.01
	// leastGap is how long nothing must have been recorded for a mark.
	leastGap = 2 * time.Second
)

// A mark is something that happened in a window. When exactly is not known.
type mark struct {
	Kind     string
	From, To time.Time
	Service  string // "" for all
	Text     string
}

// Kinds of marks.
const (
	markStart = "start" // a VM of a service that had another one
	markGC    = "gc"    // pauses for garbage collections
	markLost  = "lost"  // samples or events were lost
	markGap   = "gap"   // the agent did not record, or what it recorded cannot be read
)

type markJSON struct {
	Kind    string `json:"kind"`
	From    int64  `json:"from"` // ms since 1970
	To      int64  `json:"to"`
	Service string `json:"service,omitempty"`
	Text    string `json:"text"`
}

// marks are what happened since the agent started. The zero value is ready.
type marks struct {
	list, collections []mark           // oldest first
	started           map[string][]int // pids of VMs by service, the last one last
}

// observe looks for marks in a window.
func (m *marks) observe(p *profile.Profile) {
	end := p.Start.Add(p.Duration)
	first := m.started == nil
	if first {
		m.started = make(map[string][]int)
	}
	for _, proc := range p.Processes {
		service := stored.Printable(proc.Service)
		if proc.Runtime != "" && m.starts(service, proc.PID) && !first {
			m.list = append(m.list, mark{markStart, p.Start, end, service,
				fmt.Sprintf("%s started again (pid %d)", service, proc.PID)})
		}
		if text := collectionsOf(proc); text != "" {
			m.collections = append(m.collections, mark{markGC, p.Start, end, service, service + ": " + text})
		}
	}
	for _, loss := range []struct {
		what            string
		lost, attempted uint64
	}{
		{"samples", p.Counts.DroppedTotal() + p.Counts.Discarded[profile.Malformed] +
			p.Counts.Discarded[profile.Failed], p.Counts.Attempted},
		{"events", p.EventCounts.Lost(), p.EventCounts.Attempted},
	} {
		if part := float64(loss.lost) / float64(max(loss.attempted, 1)); part >= leastLoss {
			m.list = append(m.list, mark{markLost, p.Start, end, "",
				fmt.Sprintf("%.2g %% of the %s were lost", 100*min(part, 1), loss.what)})
		}
	}
	m.list = slices.Clone(m.list[max(0, len(m.list)-maxMarks):])
	m.collections = slices.Clone(m.collections[max(0, len(m.collections)-maxGCMarks):])
}

// starts remembers a process, and reports whether its service had another one before.
func (m *marks) starts(service string, pid int) bool {
	pids, known := m.started[service]
	if slices.Contains(pids, pid) || !known && len(m.started) >= maxStarted {
		return false
	}
	m.started[service] = append(slices.Clone(pids[max(0, len(pids)-maxStartedPIDs+1):]), pid)
	return known
}

// collectionsOf says how long a process was stopped for garbage collections; nothing if it was not.
func collectionsOf(proc *profile.Process) string {
	var collectors []string
	var pauses, stopped float64
	for _, e := range proc.Events {
		if e.Kind != profile.Pauses {
			continue
		}
		for i := range e.Rows {
			row := &e.Rows[i]
			if row.Collector == "" {
				continue
			}
			if name := stored.Printable(row.Collector); !slices.Contains(collectors, name) && len(collectors) < 4 {
				collectors = append(collectors, name)
			}
			pauses += row.Values[0]
			stopped += row.Values[profile.Pauses.Main()]
		}
	}
	if pauses == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f GC pauses, %v (%s)", pauses, time.Duration(stopped).Round(10*time.Microsecond),
		strings.Join(collectors, ", "))
}

// gaps are the times between slices in which nothing was recorded, and those between from and to
// that cannot be read.
func gaps(list []history.Slice, unread []history.Gap, from, to time.Time) (found []mark) {
	add := func(begin, end time.Time, missing time.Duration) {
		known := slices.ContainsFunc(unread, func(g history.Gap) bool { return g.From.Equal(begin) && g.To.Equal(end) })
		if missing >= leastGap && !known {
			found = append(found, mark{markGap, begin, end, "", fmt.Sprintf("%v were not recorded",
				missing.Round(time.Second))})
		}
	}
	for i, s := range list {
		add(s.Start, s.End, s.End.Sub(s.Start)-s.Covered)
		if i > 0 {
			add(list[i-1].End, s.Start, s.Start.Sub(list[i-1].End))
		}
	}
	for _, g := range unread {
		m := mark{markGap, g.From, g.To, "", profile.MissingPart + g.String()}
		if m.From.IsZero() {
			m.From = from
		}
		if m.To.IsZero() || m.To.After(to) {
			m.To = to
		}
		found = append(found, m)
	}
	return found
}

// marksOf are the marks of a service, or of all, in a time: the last ones, in the order of time.
func (k *kept) marksOf(service string, from, to time.Time, more []mark) []markJSON {
	k.mu.Lock()
	all := slices.Concat(k.marks.list, k.marks.collections, more)
	k.mu.Unlock()
	all = slices.DeleteFunc(all, func(m mark) bool {
		return !m.To.After(from) || !m.From.Before(to) || service != "" && m.Service != "" && m.Service != service
	})
	slices.SortStableFunc(all, func(a, b mark) int { return a.From.Compare(b.From) })
	out := []markJSON{}
	for _, m := range all[max(0, len(all)-maxShownMarks):] {
		out = append(out, markJSON{m.Kind, m.From.UnixMilli(), m.To.UnixMilli(), m.Service, m.Text})
	}
	return out
}
