package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// recordings is where the page has its data from.
type recordings interface {
	// Flame returns what was recorded of a kind, in windows that begin at from or later and before
	// to; a zero time is no limit. An empty service is all services. It returns nil if nothing was
	// recorded then. Nobody else changes what it returns.
	Flame(ctx context.Context, kind, service string, from, to time.Time) (*flame.Graph, error)
	// Each calls yield with windows of two times, or with parts that have several of these each, in
	// order. It may leave out other services than the named one. Nobody may change what yield gets.
	Each(ctx context.Context, kind, service string, times [2]timeRange, yield func(time int, f *flame.Graph)) error
}

const (
	// maxKept is how many windows the page can show: five minutes if they have 10 s.
	maxKept = 30
	// maxKeptNodes bounds the contexts of such a window: see Cut. Windows share what a context is,
	// and each has 32 to 64 bytes of its values. So a kind takes up to 20 MB on a busy machine,
	// while somebody looks.
	maxKeptNodes = 8000
	// maxFresh is how many windows are held while nobody looks, as they are: to convert one takes
	// tens of milliseconds on a busy machine.
	maxFresh = 3
	// lookedAt is for how long somebody who loaded the page is taken to look at it.
	lookedAt = 10 * time.Minute
)

// kept are the last windows as the page shows them. They are converted when somebody looks: first
// of the kind that is looked at, and of the others with the next window.
type kept struct {
	recorded func() []*Kind
	logger   *slog.Logger
	now      func() time.Time

	mu      sync.Mutex
	asked   time.Time
	slices  []history.Slice        // sums of the last windows, which are kept although nobody looks
	courses []course               // one for each of slices
	marks   marks                  // what happened in windows, also longer ago
	fresh   []*profile.Profile     // not converted of all kinds yet, oldest first
	windows map[string]*keptOfKind // by kind; nil if nobody looks
}

// keptOfKind are the windows of a kind.
type keptOfKind struct {
	*flame.Series
	converted int // how many of fresh are in Series
}

func newKept(recorded func() []*Kind, logger *slog.Logger) *kept {
	return &kept{recorded: recorded, logger: logger, now: time.Now}
}

// observe keeps a window.
func (k *kept) observe(p *profile.Profile) {
	slice := history.SliceOf(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.marks.observe(p)
	if k.courses = append(k.courses, courseOf(p)); len(k.courses) > maxKept {
		k.courses = append([]course(nil), k.courses[len(k.courses)-maxKept:]...)
	}
	if k.slices = append(k.slices, slice); len(k.slices) > maxKept {
		k.slices = append([]history.Slice(nil), k.slices[len(k.slices)-maxKept:]...)
	}
	k.fresh = append(k.fresh, p)
	if k.now().Sub(k.asked) < lookedAt {
		for _, of := range k.recorded() {
			k.convert(of)
		}
		k.fresh = nil
		for _, of := range k.windows {
			of.converted = 0
		}
		return
	}
	k.windows = nil
	if more := len(k.fresh) - maxFresh; more > 0 {
		k.fresh = append([]*profile.Profile(nil), k.fresh[more:]...) // a copy, so that the rest can be freed
	}
}

// convert makes what the page shows of a kind of fresh windows, and returns all windows of the
// kind.
func (k *kept) convert(of *Kind) *flame.Series {
	if k.windows == nil {
		k.windows = make(map[string]*keptOfKind)
	}
	list := k.windows[of.Name]
	if list == nil {
		list = &keptOfKind{Series: flame.NewSeries(maxKept)}
		k.windows[of.Name] = list
	}
	for _, p := range k.fresh[list.converted:] {
		f, err := flameOf(p, of, k.recorded())
		if err != nil {
			k.logger.Error("A window cannot be shown", "kind", of.Name, "err", err)
			continue
		}
		list.Add(f.Cut(maxKeptNodes))
	}
	list.converted = len(k.fresh)
	return list.Series
}

// contentOf is what a kind is made of. That of CPU time includes calls.
func contentOf(of *Kind, recorded []*Kind) sink.Content {
	content := of.Content
	if content == sink.Time && slices.ContainsFunc(recorded,
		func(other *Kind) bool { return other.Content == sink.CallCounts }) {
		content |= sink.CallCounts
	}
	return content
}

// WithSlow returns a content with the slowest calls, if the window has any and the content can have
// them.
func WithSlow(content sink.Content, p *profile.Profile) sink.Content {
	if content == sink.OfEvents(profile.Wall) && p.Followed != "" {
		content |= sink.Slow | sink.CallCounts
	}
	return content
}

// flameOf converts what a window has of one kind.
func flameOf(p *profile.Profile, of *Kind, recorded []*Kind) (*flame.Graph, error) {
	stored, err := sink.Pprof(p, WithSlow(contentOf(of, recorded), p))
	if err != nil {
		return nil, err
	}
	flames, err := flame.Read(stored)
	if err != nil {
		return nil, err
	}
	if len(flames) == 0 { // there were no calls
		return flame.Empty(of.Name, of.Title, p.Start, p.Duration), nil
	}
	return flames[0], nil
}

// Flame implements recordings.
func (k *kept) Flame(_ context.Context, kind, service string, from, to time.Time) (f *flame.Graph, _ error) {
	k.look(kind, func(windows *flame.Series) { f = windows.Sum(timeRange{from, to}.has, service, 0) })
	return f, nil
}

// look lends the windows of a kind to somebody who looks.
func (k *kept) look(name string, use func(*flame.Series)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = k.now()
	recorded := k.recorded()
	if i := slices.IndexFunc(recorded, func(of *Kind) bool { return of.Name == name }); i >= 0 {
		use(k.convert(recorded[i]))
	}
}

// Timeline returns the sums of windows that touch a time, as a history does.
func (k *kept) Timeline(_ context.Context, from, to time.Time, service string) (list []history.Slice, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.slices {
		if s.Start.Before(to) && s.End.After(from) {
			list = append(list, s.ForService(service))
		}
	}
	return list, nil
}

// Gaps implements timelines: nothing in memory is damaged.
func (*kept) Gaps(context.Context, time.Time, time.Time) ([]history.Gap, error) { return nil, nil }

// oldest is when the first window begins that is kept; zero if there is none.
func (k *kept) oldest(kind string) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if list := k.windows[kind]; list != nil && !list.Start().IsZero() {
		return list.Start()
	}
	if len(k.fresh) > 0 {
		return k.fresh[0].Start
	}
	return time.Time{}
}

// A History is what serve --history-dir keeps. Its methods may be called from any goroutine.
type History interface {
	// Query returns the profile of a time in the past, or history.ErrNone.
	Query(ctx context.Context, want history.Selection) (*profile.Profile, error)
	// Split calls yield with at most so many profiles of the parts of that time, in order. It
	// returns history.ErrNone if there is nothing.
	Split(ctx context.Context, want history.Selection, most int, yield func(*profile.Profile) error) error
	timelines
}

// withHistory is kept for the last minutes and a history for what was before.
type withHistory struct {
	*kept
	history History
}

// keeps reports whether what was recorded from a time on is kept.
func (w *withHistory) keeps(name string, from time.Time) bool {
	oldest := w.oldest(name)
	return from.IsZero() || !oldest.IsZero() && !from.Before(oldest)
}

// Flame implements recordings.
func (w *withHistory) Flame(ctx context.Context, name, service string, from, to time.Time) (*flame.Graph, error) {
	if w.keeps(name, from) {
		return w.kept.Flame(ctx, name, service, from, to)
	}
	recorded := w.recorded()
	i := slices.IndexFunc(recorded, func(k *Kind) bool { return k.Name == name })
	if i < 0 {
		return nil, errNoKind
	}
	if to.IsZero() {
		to = w.now()
	}
	window, err := w.history.Query(ctx, history.Selection{From: from, To: to, Service: service,
		Content: contentOf(recorded[i], recorded)})
	switch {
	case errors.Is(err, history.ErrNone):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return flameOf(window, recorded[i], recorded)
}

// errNoKind is the error for a kind that is not recorded.
var errNoKind = errors.New("this kind is not recorded")
