package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A Sum is what one service used in a window.
type Sum struct {
	Service string
	CPU     [profile.CodeKinds]time.Duration
	// Events are the sums of the main value of each kind (profile.EventKind.Main), without rows
	// that stand apart.
	Events [profile.EventKinds]float64
}

// SliceOf is what a timeline has of a window, as the history would return it.
func SliceOf(p *profile.Profile) Slice {
	return Slice{Start: p.Start, End: p.Start.Add(p.Duration), Covered: p.Duration, Services: sumsOf(p)}
}

// ForService is the slice with the sums of one service only, or of all if service is "". It shares them
// with s.
func (s Slice) ForService(service string) Slice {
	if service == "" {
		return s
	}
	all := s.Services
	s.Services = nil
	if at := slices.IndexFunc(all, func(sum Sum) bool { return sum.Service == service }); at >= 0 {
		s.Services = all[at : at+1 : at+1]
	}
	return s
}

// maxSums bounds the services of a window with sums of their own. The sums of all others are under
// "".
const maxSums = 500

// sums are those of the services of a window, or of several.
type sums struct {
	list  []Sum
	index map[string]int
}

// get returns the sum of a service.
func (s *sums) get(service string) *Sum {
	if s.index == nil {
		s.index = make(map[string]int)
	}
	if _, known := s.index[service]; !known && len(s.index) >= maxSums {
		service = ""
	}
	at, known := s.index[service]
	if !known {
		at = len(s.list)
		s.index[service], s.list = at, append(s.list, Sum{Service: service})
	}
	return &s.list[at]
}

// sumsOf adds up a window by service, ordered by name.
func sumsOf(p *profile.Profile) []Sum {
	var all sums
	for _, proc := range p.Processes {
		all.get(proc.Service).addProcess(p, proc)
	}
	slices.SortFunc(all.list, func(a, b Sum) int { return cmp.Compare(a.Service, b.Service) })
	return all.list
}

func (s *Sum) addProcess(p *profile.Profile, proc *profile.Process) {
	if p.Unit == profile.Samples {
		for kind, ns := range proc.ByCode(p.Period) {
			s.CPU[kind] += time.Duration(ns)
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
