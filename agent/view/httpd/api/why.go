package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// whyTimeout bounds the time of an answer.
	whyTimeout = 10 * time.Second
	// whySelected is how many of the last windows are compared if no time is selected, and
	// whyBaseline how long the baseline is at least if none is given.
	whySelected = flame.LeastWindows
	whyBaseline = 200 * time.Second
	// lookBack is how old the last window may be.
	lookBack = time.Hour
	// maxWhyParts is how many parts of each time are read from the history.
	maxWhyParts = 60
)

// A timeRange is a time: the windows that begin at From or later and before To. A zero To is no
// limit.
type timeRange struct{ From, To time.Time }

func (s timeRange) has(at time.Time) bool {
	return !at.Before(s.From) && (s.To.IsZero() || at.Before(s.To))
}

func (s timeRange) overlaps(o timeRange) bool {
	return (o.To.IsZero() || s.From.Before(o.To)) && (s.To.IsZero() || o.From.Before(s.To))
}

// A badRequest is the error for parameters that do not fit together.
type badRequest struct{ error }

// spans are the times to compare: the baseline, and the selected time. Without a selection that is
// the last windows; without a baseline, it is the time before, as long as the selection but at
// least 200 s.
func (a *API) spans(ctx context.Context, s selection) (times [2]timeRange, err error) {
	selected, base := timeRange{s.from, s.to}, timeRange{s.baseFrom, s.baseTo}
	if selected.From.IsZero() || selected.To.IsZero() {
		slices, err := a.lastSlices(ctx, selected.To)
		if err != nil {
			return times, err
		}
		if len(slices) == 0 {
			return times, nil
		}
		if selected.To.IsZero() {
			selected.To = slices[len(slices)-1].End
		}
		if selected.From.IsZero() {
			selected.From = slices[max(0, len(slices)-whySelected)].Start
		}
	}
	if !s.compares() {
		base = timeRange{selected.From.Add(-max(selected.To.Sub(selected.From), whyBaseline)), selected.From}
	}
	if base.overlaps(selected) {
		return times, badRequest{errors.New("the baseline overlaps the selection: choose another time")}
	}
	return [2]timeRange{base, selected}, nil
}

// lastSlices are the sums of the last windows up to a time, or to the last one.
func (a *API) lastSlices(ctx context.Context, to time.Time) ([]history.Slice, error) {
	var from time.Time
	if to.IsZero() {
		to = time.Now()
	}
	if a.history {
		from = to.Add(-lookBack)
	}
	return a.timelines.Timeline(ctx, from, to, "")
}

// whyKinds are the kinds whose totals are compared, the asked one first.
func (a *API) whyKinds(asked *Kind) (list []*Kind) {
	list = append(list, asked)
	for _, k := range a.kinds() {
		event, ofEvents := k.Content.Events()
		if k != asked && (k.Content == sink.Time || ofEvents && event.Describe().Telling) {
			list = append(list, k)
		}
	}
	return list
}

// Why is the answer of /api/v1/why.
type Why struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"`
	timesJSON
	*flame.Why
}

// why is the answer of /api/v1/why: how a time differs from another.
func (a *API) why(r *http.Request, s selection) (any, error) {
	if !comparable(s.kind) {
		return nil, badRequest{fmt.Errorf("%s cannot be compared", s.kind.Title)}
	}
	ctx, cancel := whyContext(r.Context())
	defer cancel()
	times, err := a.spans(ctx, s)
	if err != nil {
		return nil, err
	}
	e := flame.NewExplainer(s.service, s.pid)
	for _, k := range a.whyKinds(s.kind) {
		at := e.Kind(k.Name)
		if times[flame.Selected].To.IsZero() {
			continue // nothing was recorded yet
		}
		err := a.recordings.Each(ctx, k.Name, s.service, times, func(time int, f *flame.Graph) { e.Add(at, time, f) })
		if err != nil {
			return nil, whyError(ctx, err)
		}
	}
	why, err := e.Explain(ctx)
	if err != nil {
		return nil, whyError(ctx, err)
	}
	return Why{apiFormat, s.kind.Name, newTimes(times), why}, nil
}

// comparable reports whether there are statistics for a kind.
func comparable(k *Kind) bool {
	_, ofEvents := k.Content.Events()
	return ofEvents || k.Content == sink.Time
}

// whyContext bounds the time of a comparison.
func whyContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, whyTimeout,
		fmt.Errorf("this takes more than %v: select a shorter time, or one service", whyTimeout))
}

func whyError(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return badRequest{context.Cause(ctx)}
	}
	return err
}

// Each implements recordings.
func (k *kept) Each(
	ctx context.Context, kind, _ string, times [2]timeRange, yield func(time int, f *flame.Graph),
) error {
	k.look(kind, func(windows *flame.Series) {
		windows.Each(func(w *flame.Graph) {
			for i, t := range times {
				if t.has(w.Start) && ctx.Err() == nil {
					yield(i, w)
				}
			}
		})
	})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read windows: %w", err)
	}
	return nil
}

// Each implements recordings. Both times have one source: what is kept and the history leave out
// different rare stacks.
func (w *withHistory) Each(
	ctx context.Context, name, service string, times [2]timeRange, yield func(time int, f *flame.Graph),
) error {
	if oldest := w.oldest(name); !oldest.IsZero() && !times[0].From.Before(oldest) && !times[1].From.Before(oldest) {
		return w.kept.Each(ctx, name, service, times, yield)
	}
	recorded := w.recorded()
	i := slices.IndexFunc(recorded, func(k *Kind) bool { return k.Name == name })
	if i < 0 {
		return errNoKind
	}
	for at, t := range times {
		if t.To.IsZero() {
			t.To = w.now()
		}
		want := history.Selection{From: t.From, To: t.To, Service: service, Content: recorded[i].Content}
		err := w.history.Split(ctx, want, maxWhyParts, func(p *profile.Profile) error {
			f, err := flameOf(p, recorded[i], recorded)
			if err == nil {
				yield(at, f.Cut(maxKeptNodes))
			}
			return err
		})
		if err != nil && !errors.Is(err, history.ErrNone) {
			return fmt.Errorf("read the history: %w", err)
		}
	}
	return nil
}
