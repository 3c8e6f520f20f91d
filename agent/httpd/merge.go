package httpd

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

const (
	// processLabel is a label that only the pages have: the outermost frame of their graphs.
	processLabel = "process"
	// maxStacks bounds the memory and time that a page takes: distinct stacks in the merged profile. A flame graph
	// of so many has some 10 MB, which browsers still draw at once.
	maxStacks = 20_000
	// rareStacks is the frame that stands for those that are too many.
	rareStacks = "[rare stacks]"
)

// merge makes one pprof profile of windows, of which there is at least one. It does not tell the threads of a process
// apart, as a pool of them would multiply the stacks. Beyond limit distinct stacks, the rarest of each process become
// one, so that totals stay true.
func merge(windows []*agent.Profile, limit int) (*profile.Profile, error) {
	// Each window gets the accounts of all. They become comments, and equal comments become one.
	var counts agent.Counts
	for _, w := range windows {
		counts = plus(counts, w.Counts)
	}
	var all []*profile.Profile
	for _, w := range windows {
		w := *w
		w.Counts = counts
		p, err := sink.PprofOf(&w, sink.Time)
		if err != nil {
			return nil, fmt.Errorf("encode window: %w", err)
		}
		for _, s := range p.Sample {
			s.Label = map[string][]string{processLabel: {processName(s)}}
			s.NumLabel = nil
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	if len(merged.Sample) > limit {
		foldRare(merged, limit)
		merged = merged.Compact()
	}
	return merged, nil
}

// foldRare keeps the limit most frequent samples of p and makes one of the others of each process.
func foldRare(p *profile.Profile, limit int) {
	slices.SortStableFunc(p.Sample, func(a, b *profile.Sample) int { return cmp.Compare(b.Value[0], a.Value[0]) })
	rare := p.Sample[limit:]
	p.Sample = slices.Clip(p.Sample[:limit])
	p.Comments = append(p.Comments, fmt.Sprintf("%d rare stacks are not told apart; /profiles/cpu has all", len(rare)))

	f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: rareStacks, SystemName: rareStacks}
	loc := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: f}}}
	p.Function, p.Location = append(p.Function, f), append(p.Location, loc)
	folded := make(map[string]*profile.Sample)
	for _, s := range rare {
		process := s.Label[processLabel][0]
		sum := folded[process]
		if sum == nil {
			sum = &profile.Sample{Location: []*profile.Location{loc}, Value: make([]int64, len(s.Value)), Label: s.Label}
			folded[process] = sum
			p.Sample = append(p.Sample, sum)
		}
		for i, v := range s.Value {
			sum.Value[i] += v
		}
	}
}

// processName is what people call the process of a sample: its name and number.
func processName(s *profile.Sample) string {
	name := unnamed
	if comm := s.Label["comm"]; len(comm) > 0 {
		name = comm[0]
	}
	if pid := s.NumLabel["pid"]; len(pid) > 0 {
		name = fmt.Sprintf("%s [%d]", name, pid[0])
	}
	return name
}
