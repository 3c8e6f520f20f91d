package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// timelineSpan is how far back the page's timeline goes, and maxBars how many bars it has.
	timelineSpan = 24 * time.Hour
	maxBars      = 300
)

// timelines knows what services used when: the history on disk, or the windows that the page keeps.
type timelines interface {
	Timeline(ctx context.Context, from, to time.Time, service string) ([]history.Slice, error)
	// Gaps are the parts of that time that cannot be read.
	Gaps(ctx context.Context, from, to time.Time) ([]history.Gap, error)
}

// Timeline is the answer of /api/v1/timeline.
type Timeline struct {
	Format  int         `json:"format"`
	Kind    string      `json:"kind"`
	Title   string      `json:"title"`
	History bool        `json:"history"` // on disk
	Unit    string      `json:"unit"`
	Classes []string    `json:"classes"`
	Start   []int64     `json:"start"` // ms since 1970
	Seconds []float64   `json:"seconds"`
	Values  [][]float64 `json:"values"` // by class, then by bar
	Marks   []markJSON  `json:"marks"`
}

// timeline is the answer of /api/v1/timeline: what a service, or all, used in the last 24 hours.
// Without a history it has the windows that are kept.
func (a *API) timeline(r *http.Request, s selection) (any, error) {
	out := Timeline{Format: apiFormat, Kind: s.kind.Name, Title: s.kind.Title, History: a.history,
		Unit: "nanoseconds", Start: []int64{}, Seconds: []float64{}, Values: [][]float64{}, Marks: []markJSON{}}
	event, ofEvents := s.kind.Content.Events()
	if ofEvents {
		out.Unit = event.Values()[event.Main()].Unit
	}
	if !ofEvents && s.kind.Content != sink.Time {
		return out, nil // there are no sums of calls
	}
	from, to := s.from, s.to
	if to.IsZero() {
		to = time.Now()
	}
	if from.IsZero() && a.history {
		from = to.Add(-timelineSpan)
	}
	slices, err := a.timelines.Timeline(r.Context(), from, to, s.service)
	if err != nil {
		return nil, fmt.Errorf("read the timeline: %w", err)
	}
	unread, err := a.timelines.Gaps(r.Context(), from, to)
	if err != nil {
		return nil, fmt.Errorf("read the timeline: %w", err)
	}
	first := from
	if len(slices) > 0 {
		first = slices[0].Start
	}
	out.Marks = a.kept.marksOf(s.service, first, to, gaps(slices, unread, first, to))
	if len(slices) == 0 {
		return out, nil
	}
	classes := 1
	if ofEvents {
		out.Classes = []string{s.kind.Title}
	} else {
		classes = int(profile.CodeKinds)
		for class := range classes {
			out.Classes = append(out.Classes, flame.ClassName(class))
		}
	}
	out.Values = make([][]float64, classes)
	each := max(slices[len(slices)-1].End.Sub(slices[0].Start)/maxBars, time.Second)
	var end time.Time // end of the bar
	for _, slice := range slices {
		if !slice.Start.Before(end) {
			end = slice.Start.Add(each)
			out.Start, out.Seconds = append(out.Start, slice.Start.UnixMilli()), append(out.Seconds, 0)
			for class := range out.Values {
				out.Values[class] = append(out.Values[class], 0)
			}
		}
		last := len(out.Start) - 1
		out.Seconds[last] += slice.Covered.Seconds()
		for _, sum := range slice.Services {
			if ofEvents {
				out.Values[0][last] += sum.Events[event]
				continue
			}
			for class, used := range sum.CPU {
				out.Values[class][last] += float64(used)
			}
		}
	}
	return out, nil
}
