package events

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Wall-clock time that was observed is a part of what there was, with that of virtual threads that
// wait.
func TestApartExtent(t *testing.T) {
	p := &fold.Process{Process: new(guest.Process)}
	p.Noticed = 2 * time.Second
	window := &fold.Window{Began: time.Second, Ended: 12 * time.Second}
	observed := profile.Extent{Subject: profile.Wall.String(), What: profile.ThreadTimes, Unit: "nanoseconds",
		There: 25e9, Observed: 25e9}
	for _, tt := range []struct {
		apart apartThreads
		want  string
	}{
		{apartThreads{p.Process: 0}, virtualApart + " (amount unknown)"},
		{apartThreads{p.Process: 7.5}, "25 % of thread time observed (25 s of 100 s counted by "},
		{apartThreads{}, virtualApart + " (amount unknown)"},
	} {
		all := profile.AddExtents([]profile.Extent{tt.apart.extent(profile.Wall, window, p)}, observed)
		if len(all) != 1 || all[0].Good() || !strings.Contains(stored.ExtentSentence(&all[0]), tt.want) {
			t.Errorf("%v: %+v (%s), want %q", tt.apart, all, stored.ExtentSentence(&all[0]), tt.want)
		}
	}
}
