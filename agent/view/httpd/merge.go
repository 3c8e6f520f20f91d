package httpd

import (
	"fmt"
	"math"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// maxWindowNodes bounds the contexts of a window that is kept for pages. A node takes 48 bytes.
const maxWindowNodes = 8 << 10

// reduce makes one window of several consecutive ones, at least one, with what pages show of a kind
// and nothing else. It merges the threads of a process and the addresses of a function: these would
// multiply contexts, and keep the frames of ended processes in memory. Beyond limit contexts, the
// rarest become a frame below their nearest common caller, so that totals stay true. The windows
// are not changed.
func reduce(windows []*profile.Profile, k *kind, limit int) *profile.Profile {
	aside := false // there were events that pages leave out
	part := digest.Part{Events: k.shown.events, Kind: k.shown.kind}
	part.Labels = func(l *profile.EventLabels) (profile.EventLabels, bool) {
		if k.shown.aside != "" && l.What == k.shown.aside {
			aside = true
			return *l, false
		}
		return k.shown.labels(*l), true
	}
	m := digest.NewMerger(digest.NewNames(&part), nil)
	for _, w := range windows {
		m.AddProfile(w)
	}
	all := m.Profile(limit)
	if m.Pruned {
		all.Comments = profile.AddNotes(all.Comments, math.MaxInt, fmt.Sprintf(
			"rare stacks are merged; /profiles/%s has all", k.Name))
	}
	if aside {
		all.Comments = profile.AddNotes(all.Comments, math.MaxInt, fmt.Sprintf(
			"%s are left out; /profiles/%s has them", k.shown.asideAre, k.Name))
	}
	return all
}

// processLabel is a label that only the pages have: the outermost frame of their graphs.
const processLabel = "process"

// merge makes one pprof profile of what windows have of a kind that pages show: see reduce. There
// is at least one window.
func merge(windows []*profile.Profile, k *kind, limit int) (*pprof.Profile, error) {
	p, err := sink.Pprof(reduce(windows, k, limit), k.Content)
	if err != nil {
		return nil, fmt.Errorf("encode windows: %w", err)
	}
	leaves := leaves{profile: p}
	for _, s := range p.Sample {
		if leaf := k.shown.leafOf(s); leaf != "" {
			leaves.add(s, leaf)
		}
		s.Label = map[string][]string{processLabel: {processName(s)}}
		s.NumLabel, s.NumUnit = nil, nil
	}
	// Samples that are now alike become one.
	merged, err := pprof.Merge([]*pprof.Profile{p})
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	return merged, nil
}

// processName is what people call the process of a sample: its name and number.
func processName(s *pprof.Sample) string {
	name := unnamed
	if comm := s.Label["comm"]; len(comm) > 0 {
		name = comm[0]
	}
	if pid := s.NumLabel["pid"]; len(pid) > 0 {
		name = fmt.Sprintf("%s [%d]", name, pid[0])
	}
	return name
}
