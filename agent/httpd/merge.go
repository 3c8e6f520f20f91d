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

// merge makes one pprof profile of what windows have of a kind that pages show. There is at least one window. It does not
// tell the threads of a process apart, as a pool of them would multiply the stacks. Beyond limit distinct stacks, the
// rarest of each process become one, so that totals stay true.
func merge(windows []*agent.Profile, k *kind, limit int) (*profile.Profile, error) {
	p, err := sink.PprofOf(join(windows), k.content)
	if err != nil {
		return nil, fmt.Errorf("encode windows: %w", err)
	}
	leaves := leaves{profile: p}
	aside := 0
	p.Sample = slices.DeleteFunc(p.Sample, func(s *profile.Sample) bool {
		if k.shown.aside != "" && s.HasLabel("kind", k.shown.aside) {
			aside++
			return true
		}
		if leaf := k.shown.leafOf(s); leaf != "" {
			leaves.add(s, leaf)
		}
		s.Label = map[string][]string{processLabel: {processName(s)}}
		s.NumLabel, s.NumUnit = nil, nil
		return false
	})
	if aside > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%s are left out; /profiles/%s has them", k.shown.asideAre, k.Name))
	}
	// Samples that are now alike become one.
	merged, err := profile.Merge([]*profile.Profile{p})
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	if len(merged.Sample) > limit {
		foldRare(merged, k, limit)
		merged = merged.Compact()
	}
	return merged, nil
}

// join makes one window of several consecutive ones. Its processes are those of all, some of them several times.
func join(windows []*agent.Profile) *agent.Profile {
	all := *windows[0]
	all.Counts, all.EventCounts = agent.Counts{}, agent.EventCounts{}
	all.Processes, all.Comments, all.Duration = nil, nil, 0
	for _, w := range windows {
		all.Duration += w.Duration
		all.Counts = plus(all.Counts, w.Counts)
		all.EventCounts = plusEvents(all.EventCounts, w.EventCounts)
		all.Processes = append(all.Processes, w.Processes...)
		for _, c := range w.Comments {
			if !slices.Contains(all.Comments, c) {
				all.Comments = append(all.Comments, c)
			}
		}
	}
	return &all
}

// foldRare keeps the limit samples of p that have most of what readers see first, and makes one of the others of each
// process.
func foldRare(p *profile.Profile, k *kind, limit int) {
	first := max(0, slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == p.DefaultSampleType }))
	slices.SortStableFunc(p.Sample, func(a, b *profile.Sample) int { return cmp.Compare(b.Value[first], a.Value[first]) })
	rare := p.Sample[limit:]
	p.Sample = slices.Clip(p.Sample[:limit])
	p.Comments = append(p.Comments, fmt.Sprintf("%d rare stacks are not told apart; /profiles/%s has all", len(rare), k.Name))

	loc := addFunction(p, rareStacks)
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
