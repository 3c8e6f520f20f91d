package sink

import (
	"cmp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// programs are the processes in a profile, to find the one that a reader most likely cares for.
type programs struct {
	order []program
	ranks map[program]programRank
}

type program struct {
	pid        int
	executable symbolize.Mapping
}

type programRank struct {
	guest   int // 1 for a guest VM
	samples uint64
	calls   float64
	events  uint64
}

func (s *programs) add(p *profile.Profile) {
	if s.ranks == nil {
		s.ranks = make(map[program]programRank)
	}
	for _, proc := range p.Processes {
		id := program{proc.PID, proc.Executable}
		rank, known := s.ranks[id]
		if !known {
			s.order = append(s.order, id)
		}
		if proc.Runtime != "" {
			rank.guest = 1
		}
		for _, thread := range proc.Threads {
			if thread.Tree != nil {
				rank.samples += thread.Tree.Total()
			}
		}
		for _, c := range proc.Calls {
			rank.calls += c.Graph.Total()
		}
		for _, e := range proc.Events {
			rank.events += countEvents(e)
		}
		s.ranks[id] = rank
	}
}

// busiest returns the executable of the process with most samples, or else most calls, or else most events, of a guest if there is one. It
// is zero without any process.
func (s *programs) busiest() symbolize.Mapping {
	if len(s.order) == 0 {
		return symbolize.Mapping{}
	}
	return slices.MaxFunc(s.order, func(a, b program) int {
		rankA, rankB := s.ranks[a], s.ranks[b]
		return cmp.Or(cmp.Compare(rankA.guest, rankB.guest), cmp.Compare(rankA.samples, rankB.samples),
			cmp.Compare(rankA.calls, rankB.calls), cmp.Compare(rankA.events, rankB.events))
	}).executable
}
