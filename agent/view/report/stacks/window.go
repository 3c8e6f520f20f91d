package stacks

import (
	"fmt"
	"maps"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Windows returns what the metadata of a profile says of its windows, by number. Of two with one
// number the first counts.
func Windows(p *pprof.Profile) map[int64]stored.Window {
	windows := make(map[int64]stored.Window)
	m, err := stored.MetadataOf(p)
	if err != nil {
		return windows
	}
	for _, w := range m.Windows {
		if _, known := windows[w.Number]; !known {
			windows[w.Number] = w
		}
	}
	return windows
}

// ByWindow are the samples of a stored profile by the number of their window. Samples that name
// none are not there.
func ByWindow(p *pprof.Profile) (map[int64][]*pprof.Sample, error) {
	windows := make(map[int64][]*pprof.Sample)
	for _, sample := range p.Sample {
		n := Number(sample, stored.LabelWindow)
		if n < 1 {
			continue
		}
		if windows[n] == nil && len(windows) == stored.MaxWindows {
			return nil, fmt.Errorf("the profile has more than %d windows", stored.MaxWindows)
		}
		windows[n] = append(windows[n], sample)
	}
	return windows, nil
}

// WindowOf returns a part of a stored profile: the samples of one window, and the metadata and
// comments that are about it or about no other. It shares all but its samples with p. It fails if p
// does not have that window.
func WindowOf(p *pprof.Profile, number int64) (*pprof.Profile, error) {
	windows, err := ByWindow(p)
	if err != nil {
		return nil, err
	}
	m, err := stored.MetadataOf(p)
	if err != nil {
		m = nil
	}
	window, known := Windows(p)[number]
	if len(windows[number]) == 0 && !known {
		return nil, fmt.Errorf("there is no window %d: %s", number, haveWindows(windows))
	}
	w := &pprof.Profile{
		SampleType: p.SampleType, DefaultSampleType: p.DefaultSampleType, Sample: windows[number],
		Mapping: p.Mapping, Location: p.Location, Function: p.Function,
		PeriodType: p.PeriodType, Period: p.Period, DropFrames: p.DropFrames, KeepFrames: p.KeepFrames,
	}
	others := stored.OtherComments(p, m)
	if known {
		w.TimeNanos, w.DurationNanos = window.Start.UnixNano(), window.Duration.Nanoseconds()
		m.Account, m.Windows, m.Calls = window.Account, []stored.Window{window}, nil // Calls are sums over all windows
		m.Contexts = slices.DeleteFunc(m.Contexts, func(c stored.ProcessContexts) bool {
			return c.Window > 0 && c.Window != number
		})
		m.Lanes = slices.DeleteFunc(m.Lanes, func(l stored.Lanes) bool { return l.Window > 0 && l.Window != number })
		if err := m.Store(w); err != nil {
			return nil, err
		}
	}
	w.Comments = append(w.Comments, others...)
	return w, nil
}

// haveWindows says which windows there are.
func haveWindows(windows map[int64][]*pprof.Sample) string {
	switch len(windows) {
	case 0:
		return "the profile has no windows: record some with vmprof-agent record --window=10s"
	case 1:
		return fmt.Sprintf("the profile has window %d only", slices.Collect(maps.Keys(windows))[0])
	}
	numbers := slices.Sorted(maps.Keys(windows))
	return fmt.Sprintf("the profile has %d, from %d to %d", len(numbers), numbers[0], numbers[len(numbers)-1])
}
