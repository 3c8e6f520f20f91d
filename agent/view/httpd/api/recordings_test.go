package api

import (
	"log/slog"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// While nobody looks, windows are not converted and few are held. Who looks then sees these, of the
// kind that is looked at: no other is converted before the answer. After that, all windows that
// follow are seen.
func TestKeptUnlooked(t *testing.T) {
	at := time.Now()
	recorded := []*Kind{{Name: "cpu", Content: sink.Time}, {Name: "calls", Content: sink.CallCounts},
		{Name: "alloc", Content: sink.OfEvents(profile.Allocations)},
		{Name: "lock", Content: sink.OfEvents(profile.Locks)}}
	shop := func(n uint64) *profile.Profile {
		p := sinktest.Shop()
		p.Start, p.Duration = time.Unix(int64(1000+10*n), 0), 10*time.Second
		return p
	}
	k := newKept(func() []*Kind { return recorded }, slog.New(slog.DiscardHandler))
	k.now = func() time.Time { return at }
	seconds := func() float64 {
		f, err := k.Flame(t.Context(), "cpu", "", time.Time{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return f.Duration.Seconds()
	}
	for n := range uint64(10) {
		k.observe(shop(n))
	}
	if len(k.fresh) != maxFresh || k.windows != nil {
		t.Errorf("%d windows are held, %d kinds converted", len(k.fresh), len(k.windows))
	}
	if got := seconds(); got != 10*maxFresh {
		t.Errorf("who looks first sees %v s", got)
	}
	if len(k.windows) != 1 || len(k.fresh) != maxFresh {
		t.Errorf("for one kind, %d kinds are converted; %d windows are held for the others", len(k.windows),
			len(k.fresh))
	}
	for n := range uint64(5) {
		k.observe(shop(10 + n))
	}
	if got := seconds(); got != 10*(maxFresh+5) || len(k.fresh) != 0 || len(k.windows) != len(recorded) {
		t.Errorf("then %v s of %d kinds", got, len(k.windows))
	}
	for _, of := range recorded {
		if f, err := k.Flame(t.Context(), of.Name, "", time.Time{}, time.Time{}); err != nil ||
			f.Duration.Seconds() != 10*(maxFresh+5) {
			t.Errorf("%s: %v, %v", of.Name, f, err)
		}
	}
	at = at.Add(lookedAt)
	if k.observe(shop(20)); k.windows != nil || len(k.fresh) != 1 {
		t.Error("what nobody looks at is kept")
	}
}
