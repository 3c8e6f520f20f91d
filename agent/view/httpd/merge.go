package httpd

import (
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// processLabel is a label that only the pages have: the outermost frame of their graphs.
const processLabel = "process"

// merge makes one pprof profile of what windows have of a kind that pages show: see reduce. There
// is at least one window.
func merge(windows []*profile.Profile, k *kind, limit int) (*pprof.Profile, error) {
	p, err := sink.Pprof(reduce(windows, k, limit), k.content)
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
