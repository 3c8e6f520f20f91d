package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A movingLister has one virtual thread, which so many collections move while it is read.
type movingLister struct{ moves, reads int }

func (l *movingLister) Collections() (uint64, error) { return uint64(l.reads), nil }

func (l *movingLister) VirtualThreads(int, func(int) int) ([]vmruntime.VirtualThread, error) {
	return []vmruntime.VirtualThread{{ID: 7, Weight: 1}}, nil
}

func (l *movingLister) DescribeVirtual([]vmruntime.VirtualWords, uint64) ([]vmruntime.VirtualDoing, error) {
	doing := []vmruntime.VirtualDoing{{State: vmruntime.VirtualParked}}
	if l.reads++; l.reads <= l.moves {
		return doing, fmt.Errorf("moved: %w", vmruntime.ErrMoved)
	}
	return doing, nil
}

// Virtual threads are read again if a collection moves them, and are not lost if it always does.
func TestDrawVirtualThatMove(t *testing.T) {
	for moves, reads := range map[int]int{0: 1, 1: 2, virtualTries: virtualTries, 100: virtualTries} {
		l := &movingLister{moves: moves}
		threads, collections, err := drawVirtual(l, 1)
		if err != nil || len(threads) != 1 || threads[0].ID != 7 || l.reads != reads || collections != uint64(reads-1) {
			t.Errorf("%d collections: %+v after %d readings, the last after %d, %v", moves, threads, l.reads, collections, err)
		}
	}
}

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
