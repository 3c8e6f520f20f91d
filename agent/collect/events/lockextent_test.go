package events

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// What there was of waits before probes came is what the list of threads says, or what the rate
// since then gives if that is more.
func TestLockExtentBefore(t *testing.T) {
	p := &fold.Process{Process: guest.NewProcess(proc.Identity{PID: 7, Start: 50e9})}
	p.Noticed = 55 * time.Second
	p.Attachment.Store(1)
	window := fold.NewWindow(nil)
	window.Began, window.Ended = 100*time.Second, 110*time.Second
	cover := &fold.Coverage{Kind: profile.Locks}
	cover.Begin(50*time.Second, nil)
	cover.Follow(p.Identity(), 104*time.Second)
	covered := fold.Covered(nil, map[*fold.Coverage]fold.CoverageSums{cover: cover.Sums(110 * time.Second)},
		window.Began, window.Ended, &profile.EventCounts{})
	row := profile.EventRow{}
	row.Values[profile.Locks.Main()] = 6e9
	all := []*profile.Events{{Kind: profile.Locks, Rows: []profile.EventRow{row}}}
	// Two threads for 4 s each are more than the 4 s by the rate.
	for waited, want := range map[int]float64{0: 10e9, 2: 14e9} {
		e := &Source{locks: &lockWaits{}}
		e.locks.noteLate(p.Process, 104*time.Second, waited, false)
		list := e.lockExtent(window, p, all, &covered)
		if len(list) != 1 || list[0].There != want {
			t.Errorf("%d threads waited: %+v, want %v of waits", waited, list, want)
		}
	}
}
