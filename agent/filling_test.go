package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A fillingSource takes part in profiles as its function does.
type fillingSource struct {
	source.Passive
	fill func(*profile.Profile) source.Part
}

func (f fillingSource) Fill(_ context.Context, _ *source.Closed, p *profile.Profile) source.Part {
	return f.fill(p)
}

// A panic of one source over a profile is counted, noted and logged, and costs that source's part:
// others have theirs.
func TestFillPanics(t *testing.T) {
	a, w, log := faultyAgent(t, guest.StageRecord, 0)
	sampled(a, 1)
	finished := 0
	add := func(fill func(*profile.Profile) source.Part) {
		a.sources.first = append(a.sources.first, &fillingSource{fill: fill})
	}
	add(func(*profile.Profile) source.Part { panic("hostile") })
	add(func(*profile.Profile) source.Part { return source.Part{Finish: func() { panic("hostile") }} })
	add(func(p *profile.Profile) source.Part {
		p.Event = "test"
		return source.Part{Finish: func() { finished++ }}
	})
	closed := &source.Closed{Window: w, Processes: a.state().Close(w)}
	p := a.profileOf(t.Context(), closed, &profile.Profile{Counts: profile.Counts{Truncated: map[string]uint64{}}})
	if p.Event != "test" || finished != 1 || len(p.Processes) != 1 || len(p.Processes[0].Threads) != 1 {
		t.Errorf("event %q, %d finished, %d processes", p.Event, finished, len(p.Processes))
	}
	notes := 0
	for _, c := range p.Comments {
		if strings.Contains(c, "is missing") {
			notes++
		}
	}
	if n := a.services.Resolver.Stats().Failures[string(guest.StageWindow)]; n != 2 || notes != 2 ||
		strings.Count(log.String(), "stack=") != 2 {
		t.Errorf("%d failures are counted, %d are noted:\n%s", n, notes, log)
	}
	a.owner.Release(w)
}

// An endingSource makes whole profiles.
type endingSource struct{ source.Passive }

func (endingSource) End(_ context.Context, begin func() *profile.Profile) (*profile.Profile, error) {
	return begin(), nil
}

// Where a source makes whole profiles, no window follows the first, and that is still there.
func TestNextOfCountedCalls(t *testing.T) {
	a, w := testAgent()
	a.sources.then = []source.Source{endingSource{}}
	next, p, err := (&Window{agent: a, open: w}).Next(t.Context())
	if next != nil || p != nil || err == nil {
		t.Errorf("window %v, profile %v, error %v", next, p, err)
	}
	if n := len(a.state().Windows()); n != 1 {
		t.Errorf("%d windows are open, want 1", n)
	}
}

// A window that could not be closed has no profile, and the error says why.
func TestCloseFails(t *testing.T) {
	a, w, _ := faultyAgent(t, guest.StageRecord, 0)
	a.sources.first = []source.Source{flushingSource{}}
	_, _, err := a.close(&Window{agent: a, open: w}, nil)
	if panicked := new(proc.PanicError); !errors.As(err, &panicked) {
		t.Errorf("got error %v", err)
	}
}

// A flushingSource panics when it is to fold what it holds.
type flushingSource struct{ source.Passive }

func (flushingSource) Flush(*fold.State) { panic("hostile") }
