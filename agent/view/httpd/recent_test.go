package httpd

import (
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

func TestRecentHoldsAMinute(t *testing.T) {
	for _, tt := range []struct {
		length time.Duration
		want   int
	}{
		{10 * time.Second, 6},
		{25 * time.Second, 3},
		{5 * time.Minute, 1},
		{time.Millisecond, maxWindows},
	} {
		var r recent
		for range 100 {
			r.add(&profile.Profile{Duration: tt.length})
		}
		newest := &profile.Profile{Duration: tt.length}
		r.add(newest)
		windows, version := r.last()
		if len(windows) != tt.want || windows[len(windows)-1] != newest || version != 101 {
			t.Errorf("windows of %v: %d are held in version %d, want %d", tt.length, len(windows), version, tt.want)
		}
	}
}

func TestBusiest(t *testing.T) {
	reused := shop(1)
	reused.Processes[1].Comm = "nginx" // with the process id of postgres
	got := busiest([]*profile.Profile{shop(0), shop(1), reused}, &view{amount: cpuTime}, 3)
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
	}
	if len(got) != 3 || got[0].Name != "java" || got[1].Name != "postgres" || got[2].Name != "nginx" ||
		got[0].VM == "" {
		t.Errorf("got %q, want java, postgres and nginx", names)
	}
	if used, want := time.Duration(got[1].Amount), 2*130*time.Second/99; used.Round(time.Millisecond) != want.Round(time.Millisecond) {
		t.Errorf("postgres used %v, want %v", used, want)
	}
	if got := busiest(nil, &view{amount: cpuTime}, 3); len(got) != 0 {
		t.Errorf("nothing ran, but %v", got)
	}
}

// The front page says of which processes a part was not observed.
func TestBusiestObservedPartly(t *testing.T) {
	window := func(observed time.Duration) *profile.Profile {
		return &profile.Profile{Duration: 10 * time.Second, Processes: []*profile.Process{{PID: 7, Comm: "java",
			Events: []*profile.Events{{
				Kind: profile.Allocations, Rows: []profile.EventRow{{Values: [3]float64{1, 1000}}},
				Coverage: &profile.Coverage{Time: 10 * time.Second, Observed: observed},
			}}}}}
	}
	alloc := kinds[slices.IndexFunc(kinds, func(k *kind) bool { return k.Name == "alloc" })]
	for observed, want := range map[time.Duration]string{10 * time.Second: "",
		2 * time.Second:              "observed 60 % of the time",
		9_999_000 * time.Microsecond: "observed 99 % of the time"} {
		got := busiest([]*profile.Profile{window(10 * time.Second), window(observed)}, alloc.shown, 3)
		if len(got) != 1 || got[0].Amount != 2000 || got[0].Part != want {
			t.Errorf("observed for %v of the second window: %+v, want %q", observed, got, want)
		}
	}
}
