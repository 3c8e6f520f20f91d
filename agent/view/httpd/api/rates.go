package api

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// maxRated is how many services have rates: each one more makes all others harder to decide.
	maxRated = 40
	// maxPoints is how many points the course of a rate has.
	maxPoints = 60
	// changeLeast is the least change that is shown, as a part of what was before.
	changeLeast = 0.2
	// nominalSample is the CPU time of a sample, about: sums do not say how many there were.
	nominalSample = 10 * time.Millisecond
)

// A ratedKind is a kind whose sums are shown of each service.
type ratedKind struct {
	kind  *Kind
	unit  string
	least float64 // change per second that is shown at least: 20 ms of CPU time, 1 MB, 1 ms of delay or pauses
	of    func(*history.Sum) float64
}

func (a *API) ratedKinds() (list []ratedKind) {
	for _, k := range a.kinds() {
		event, ofEvents := k.Content.Events()
		switch {
		case k.Content == sink.Time:
			list = append(list, ratedKind{k, "nanoseconds", 2e7, func(s *history.Sum) (sum float64) {
				for _, used := range s.CPU {
					sum += float64(used)
				}
				return sum
			}})
		case ofEvents && event.Describe().Telling:
			list = append(list, ratedKind{k, event.Values()[event.Main()].Unit, 1e6,
				func(s *history.Sum) float64 { return s.Events[event] }})
		}
	}
	return list
}

// A rateJSON is what a service used of one kind.
type rateJSON struct {
	Kind   string      `json:"kind"`
	Unit   string      `json:"unit"`
	Value  float64     `json:"value"`  // per second
	Points []float64   `json:"points"` // per second, of the baseline and what follows
	Change *changeJSON `json:"change,omitempty"`
}

// A changeJSON is a change from the baseline that is more than chance, in percent.
type changeJSON struct {
	Verdict string   `json:"verdict"`
	Percent *float64 `json:"percent,omitempty"` // none if there was nothing before
	Within  *float64 `json:"within,omitempty"`
	Before  float64  `json:"before"` // per second
	Now     float64  `json:"now"`
}

// timesJSON are times in ms since 1970.
type timesJSON struct {
	From     int64 `json:"from"`
	To       int64 `json:"to"`
	BaseFrom int64 `json:"basefrom"`
	BaseTo   int64 `json:"baseto"`
}

func newTimes(times [2]timeRange) timesJSON {
	millis := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	base, selected := times[flame.Baseline], times[flame.Selected]
	return timesJSON{millis(selected.From), millis(selected.To), millis(base.From), millis(base.To)}
}

// rate adds rates to the busiest services of an answer: what they used in the selected time, its
// course, and what changed.
func (a *API) rate(r *http.Request, s selection, out *Services) error {
	times, err := a.spans(r.Context(), s)
	if errors.As(err, new(badRequest)) { // then the baseline is the time before
		s.baseFrom, s.baseTo = time.Time{}, time.Time{}
		times, err = a.spans(r.Context(), s)
	}
	if err != nil || times[flame.Selected].To.IsZero() {
		return err
	}
	out.Compared = newTimes(times)
	list, err := a.timelines.Timeline(r.Context(), earlier(times[0].From, times[1].From),
		later(times[0].To, times[1].To), "")
	if err != nil || len(list) == 0 {
		return err
	}
	kinds := a.ratedKinds()
	n := min(len(out.Services), maxRated)
	index := make(map[string]int, n)
	for i := range n {
		index[out.Services[i].Service] = i + 1
	}
	// The first row is all services, whatever they are.
	values := make([][]float64, (n+1)*len(kinds)) // values by slice
	for i := range values {
		values[i] = make([]float64, len(list))
	}
	for at := range list {
		for j := range list[at].Services {
			sum := &list[at].Services[j]
			for k := range kinds {
				v := kinds[k].of(sum)
				values[k][at] += v
				if i := index[stored.Printable(sum.Service)]; i > 0 {
					values[i*len(kinds)+k][at] += v
				}
			}
		}
	}
	changes := changesOf(list, times, kinds, values)
	shown := timeRange{s.from, s.to}
	for row := range n + 1 {
		var rates []rateJSON
		for k := range kinds {
			v := values[row*len(kinds)+k]
			rate := rateJSON{Kind: kinds[k].kind.Name, Unit: kinds[k].unit, Value: perSecond(list, v, shown),
				Points: courseOfRate(list, v), Change: changes[row*len(kinds)+k]}
			if slices.Max(v) > 0 {
				rates = append(rates, rate)
			}
		}
		if row == 0 {
			out.Rates = rates
		} else {
			out.Services[row-1].Rates = rates
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// perSecond is the rate of values in a time.
func perSecond(list []history.Slice, values []float64, in timeRange) float64 {
	var sum, seconds float64
	for at := range list {
		if in.has(list[at].Start) {
			sum += values[at]
			seconds += list[at].Covered.Seconds()
		}
	}
	return sum / max(seconds, 1e-9)
}

// courseOfRate are the rates of neighbouring slices together, so that there are not too many.
func courseOfRate(list []history.Slice, values []float64) (points []float64) {
	together := (len(list) + maxPoints - 1) / maxPoints
	for at := 0; at < len(list); at += together {
		end := min(at+together, len(list))
		v := perSecond(list[at:end], values[at:end], timeRange{})
		points = append(points, math.Round(v*1000)/1000)
	}
	return points
}

// changesOf tests all services and kinds at once, so that no more than one of a hundred changes is
// chance.
func changesOf(list []history.Slice, times [2]timeRange, kinds []ratedKind, values [][]float64) []*changeJSON {
	changes := make([]*changeJSON, len(values))
	var sides [2]audit.Side[int]
	for side, in := range times {
		var run audit.Run[int]
		for at := range list {
			if !in.has(list[at].Start) {
				continue
			}
			w := audit.Window[int]{Units: list[at].Covered.Seconds(), Keys: make(map[int]audit.Cost)}
			for key := range values {
				if v := values[key][at]; v > 0 {
					cost := audit.Cost{Amount: v}
					if kinds[key%len(kinds)].kind.Content == sink.Time {
						cost.Samples = v / float64(nominalSample)
					}
					w.Keys[key] = cost
				}
			}
			run.Windows = append(run.Windows, w)
		}
		sides[side].Runs = []audit.Run[int]{run}
	}
	keys := make([]int, len(values))
	for i := range keys {
		keys[i] = i
	}
	result := audit.Compare(sides[0], sides[1], keys, &audit.Options{Least: changeLeast, Windows: flame.LeastWindows})
	for i, d := range result.Keys {
		if d.Verdict != audit.More && d.Verdict != audit.Less || math.Abs(d.Change) < kinds[i%len(kinds)].least {
			continue
		}
		c := &changeJSON{Verdict: d.Verdict.String(), Before: d.A.PerUnit, Now: d.B.PerUnit}
		if within := (d.High - d.Low) / 2; !math.IsInf(d.Percent, 0) && !math.IsNaN(within) && !math.IsInf(within, 0) {
			c.Percent, c.Within = &d.Percent, &within
		}
		changes[i] = c
	}
	return changes
}
