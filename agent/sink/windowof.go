package sink

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
)

// storedWindows are the samples of a stored profile by the number of their window. Samples that name none are not
// there.
func storedWindows(p *pprof.Profile) (map[int64][]*pprof.Sample, error) {
	windows := make(map[int64][]*pprof.Sample)
	for _, sample := range p.Sample {
		n := number(sample, labelWindow)
		if n < 1 {
			continue
		}
		if windows[n] == nil && len(windows) == MaxWindows {
			return nil, fmt.Errorf("the profile has more than %d windows", MaxWindows)
		}
		windows[n] = append(windows[n], sample)
	}
	return windows, nil
}

// WindowOf returns a part of a stored profile: the samples of one window, and the comments that are about it or about
// no other. It shares all but its samples with p. It fails if p does not have that window.
func WindowOf(p *pprof.Profile, number int64) (*pprof.Profile, error) {
	windows, err := storedWindows(p)
	if err != nil {
		return nil, err
	}
	lines := windowLines(p)
	line, told := lines[number]
	if len(windows[number]) == 0 && !told {
		return nil, fmt.Errorf("there is no window %d: %s", number, haveWindows(windows))
	}
	w := &pprof.Profile{
		SampleType: p.SampleType, DefaultSampleType: p.DefaultSampleType, Sample: windows[number],
		Mapping: p.Mapping, Location: p.Location, Function: p.Function,
		PeriodType: p.PeriodType, Period: p.Period, DropFrames: p.DropFrames, KeepFrames: p.KeepFrames,
	}
	if told {
		w.TimeNanos, w.DurationNanos = line.start.UnixNano(), line.duration.Nanoseconds()
		w.Comments = append(w.Comments, line.summary, line.String())
	}
	for _, comment := range p.Comments {
		if strings.HasPrefix(comment, "samples: ") || strings.HasPrefix(comment, "events: ") || strings.HasPrefix(comment, "calls: ") {
			continue // sums over all windows
		}
		if _, ok := parseWindowLine(comment); ok {
			continue
		}
		if l, ok := parseContextLine(comment); ok && l.Window > 0 && l.Window != number {
			continue
		}
		w.Comments = append(w.Comments, comment)
	}
	return w, nil
}

// haveWindows says which windows there are.
func haveWindows(windows map[int64][]*pprof.Sample) string {
	switch len(windows) {
	case 0:
		return "the profile has none: record some with vmprof-agent record --window=10s"
	case 1:
		return fmt.Sprintf("the profile has window %d only", slices.Collect(maps.Keys(windows))[0])
	}
	numbers := slices.Sorted(maps.Keys(windows))
	return fmt.Sprintf("the profile has %d, from %d to %d", len(numbers), numbers[0], numbers[len(numbers)-1])
}
