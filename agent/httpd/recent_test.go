package httpd

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
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
			r.add(&agent.Profile{Duration: tt.length})
		}
		newest := &agent.Profile{Duration: tt.length}
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
	got := busiest([]*agent.Profile{shop(0), shop(1), reused}, cpuTime, 3)
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
	}
	if len(got) != 3 || got[0].Name != "java" || got[1].Name != "postgres" || got[2].Name != "nginx" || got[0].VM == "" {
		t.Errorf("got %q, want java, postgres and nginx", names)
	}
	if used, want := time.Duration(got[1].Amount), 2*130*time.Second/99; used.Round(time.Millisecond) != want.Round(time.Millisecond) {
		t.Errorf("postgres used %v, want %v", used, want)
	}
	if got := busiest(nil, cpuTime, 3); len(got) != 0 {
		t.Errorf("nothing ran, but %v", got)
	}
}
