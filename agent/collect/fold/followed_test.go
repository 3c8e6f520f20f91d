package fold

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// What was observed of a process follows from when the probes could see it, when they recorded, and
// what was lost.
func TestFollowedExtents(t *testing.T) {
	const began, ended = 100 * time.Second, 110 * time.Second
	const burst = "a burst at the end"
	for _, test := range []struct {
		name string
		kind profile.EventKind
		do   func(c *Coverage, id proc.Identity)
		lost uint64 // lost ones of 10 events
		want string
	}{
		{"all the time", profile.Pauses, func(c *Coverage, id proc.Identity) {
			c.Begin(50*time.Second, nil)
			c.Follow(id, 60*time.Second)
		}, 0, "100% []"},
		{"attached late", profile.Pauses, func(c *Coverage, id proc.Identity) {
			c.Begin(50*time.Second, nil)
			c.Follow(id, 104*time.Second)
		}, 0, "60% [the probes were not attached yet 4s]"},
		{"in a slice", profile.Values, func(c *Coverage, id proc.Identity) {
			c.Follow(id, 60*time.Second)
			c.Begin(100*time.Second, &Slice{To: 102 * time.Second, Weight: 5, Length: 2 * time.Second,
				Cycle: 10 * time.Second})
			c.SetPartly(errors.New("too expensive"))
		}, 0, "20% [they were recorded part of the time to stay within the budget 8s]"},
		{burst, profile.Exceptions, func(c *Coverage, id proc.Identity) {
			c.Follow(id, 60*time.Second)
			c.Begin(90*time.Second, nil)
		}, 0, "100% [they were so many for a moment that their probes were removed to stay within the budget 0s]"},
		{"ended early", profile.Pauses, func(c *Coverage, id proc.Identity) {
			c.Begin(50*time.Second, nil)
			c.Follow(id, 60*time.Second)
			c.Leave(id, 102*time.Second)
		}, 0, "100% []"},
		{"lost", profile.Barriers, func(c *Coverage, id proc.Identity) {
			c.Begin(50*time.Second, nil)
			c.Follow(id, 60*time.Second)
		}, 3, "70% [records were lost 3s]"},
		{"not followed", profile.Pauses, func(c *Coverage, id proc.Identity) { c.Begin(50*time.Second, nil) }, 0, ""},
		{"everybody", profile.Faults, func(c *Coverage, id proc.Identity) {
			c.Everybody = true
			c.Begin(50*time.Second, nil)
		}, 0, "100% []"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := guest.NewProcess(proc.Identity{PID: 7, Start: 50e9})
			p.Noticed = 55 * time.Second
			c := &Coverage{Kind: test.kind, What: "things"}
			test.do(c, p.Identity())
			counts := profile.EventCounts{Attempted: 10, Delivered: 10 - test.lost,
				Dropped: map[string]uint64{"ring_full": test.lost}}
			before := map[*Coverage]CoverageSums{c: c.Sums(began)}
			if test.name == burst {
				c.End(ended - 30*time.Millisecond)
			}
			parts := Covered(before, map[*Coverage]CoverageSums{c: c.Sums(ended)}, began, ended, &counts)
			got := ""
			for _, e := range parts.Extents(p, nil) {
				var missed []string
				for _, m := range e.Missed {
					missed = append(missed, fmt.Sprint(m.Why, " ", time.Duration(m.Amount).Round(time.Millisecond)))
				}
				got += fmt.Sprintf("%.0f%% %v", 100*e.Share(), missed)
				if e.Subject != test.kind.String() {
					t.Errorf("subject %q", e.Subject)
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if rest := parts.Extents(p, []profile.Extent{{Subject: test.kind.String()}}); len(rest) != 0 {
				t.Errorf("%v, though somebody else has counted", rest)
			}
		})
	}
}

// What a VM counted before it was attached is estimated by the rate since.
func TestAddLate(t *testing.T) {
	p := guest.NewProcess(proc.Identity{PID: 7, Start: 50e9})
	p.Noticed = 55 * time.Second
	c := &Coverage{Kind: profile.Allocations}
	c.Begin(50*time.Second, nil)
	c.Follow(p.Identity(), 102*time.Second)
	parts := Covered(nil, map[*Coverage]CoverageSums{c: c.Sums(110 * time.Second)}, 100*time.Second, 110*time.Second,
		&profile.EventCounts{})
	extents := []profile.Extent{{Subject: "alloc", There: 80, Observed: 80}, {Subject: "lock", There: 80}}
	parts.AddLate(profile.Allocations, p, extents)
	if got := extents[0]; got.There != 100 || got.Observed != 80 || len(got.Missed) != 1 || got.Missed[0].Amount != 20 {
		t.Errorf("%+v", got)
	}
	if extents[1].There != 80 {
		t.Errorf("%+v", extents[1])
	}
}
