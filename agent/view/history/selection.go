package history

import (
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// A Selection is a part of a history.
type Selection struct {
	From, To time.Time    // windows that have at least half of their time in it; if there are none, those that touch it
	Service  string       // "" for all
	PIDs     []int        // none for all
	Content  sink.Content // kinds to read: sink.Time, sink.OfEvents(…) and so on, or several; 0 for all
}

// wants reports whether a process is part of the selection.
func (s *Selection) wants(p *profile.Process) bool {
	return s == nil || (s.Service == "" || s.Service == p.Service) &&
		(len(s.PIDs) == 0 || slices.Contains(s.PIDs, p.PID))
}

// has reports whether the selection has a kind.
func (s *Selection) has(content sink.Content) bool {
	return s == nil || s.Content == 0 || s.Content&content != 0
}

// account has the account of samples be that of the selected processes, if their samples are there.
func (s *Selection) account(p *profile.Profile) {
	if !s.has(sink.Time) {
		return
	}
	folded := uint64(0)
	for _, proc := range p.Processes {
		for _, t := range proc.Threads {
			folded += t.Tree.Total()
		}
	}
	p.Counts = p.Counts.Part(folded)
}
