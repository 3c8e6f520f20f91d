package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A Sum is what one service used in a window.
type Sum struct {
	Service string
	CPU     [profile.CodeKinds]time.Duration
	// Events are the sums of the main value of each kind (profile.EventKind.Main), without rows that stand apart.
	Events [profile.EventKinds]float64
}

// maxSums bounds the services of a window with sums of their own. The sums of all others are under "".
const maxSums = 500

// sumsOf adds up a window by service, ordered by name.
func sumsOf(p *profile.Profile) (list []Sum) {
	index := make(map[string]int)
	for _, proc := range p.Processes {
		service := proc.Service
		if _, known := index[service]; !known && len(index) >= maxSums {
			service = ""
		}
		at, known := index[service]
		if !known {
			at = len(list)
			index[service], list = at, append(list, Sum{Service: service})
		}
		list[at].addProcess(p, proc)
	}
	slices.SortFunc(list, func(a, b Sum) int { return cmp.Compare(a.Service, b.Service) })
	return list
}

func (s *Sum) addProcess(p *profile.Profile, proc *profile.Process) {
	if p.Unit == profile.Samples {
		for kind, n := range proc.ByCode() {
			s.CPU[kind] += time.Duration(n) * p.Period
		}
	}
	for _, e := range proc.Events {
		for i := range e.Rows {
			if row := &e.Rows[i]; !e.Kind.Apart(&row.EventLabels) {
				s.Events[e.Kind] += row.Values[e.Kind.Main()]
			}
		}
	}
}

func (s *Sum) add(o *Sum) {
	for k := range o.CPU {
		s.CPU[k] += o.CPU[k]
	}
	for k := range o.Events {
		s.Events[k] += o.Events[k]
	}
}
