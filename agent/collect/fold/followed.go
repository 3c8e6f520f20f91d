package fold

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// maxFollowed bounds the ended processes that a Coverage remembers, about 50 bytes each.
const maxFollowed = 1024

// A followedTime is when the probes of a plan could observe a process, CLOCK_MONOTONIC.
type followedTime struct{ from, to time.Duration } // to is math.MaxInt64 until the process ends

// Follow records that the probes of the plan can observe a process from now on.
func (c *Coverage) Follow(id proc.Identity, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.followed[id]; known {
		return
	}
	if len(c.followed) >= maxFollowed {
		for id, t := range c.followed {
			if t.to != math.MaxInt64 {
				delete(c.followed, id)
			}
		}
	}
	if c.followed == nil {
		c.followed = map[proc.Identity]followedTime{}
	}
	c.followed[id] = followedTime{now, math.MaxInt64}
}

// Continue records that the probes of the plan observe a process instead of those of another plan.
func (c *Coverage) Continue(other *Coverage, id proc.Identity) {
	t, known := other.followedIn(id)
	before := other.BornAt()
	if known {
		c.Follow(id, t.from)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// Leave records that a process has ended.
func (c *Coverage) Leave(id proc.Identity, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, known := c.followed[id]; known && t.to == math.MaxInt64 {
		c.followed[id] = followedTime{t.from, now}
	}
}

// followedIn returns when the plan could observe a process; ok is false if it could not, or if that
// is forgotten.
func (c *Coverage) followedIn(id proc.Identity) (t followedTime, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok = c.followed[id]
	return t, ok || c.Everybody
}

// Extents returns how much of a process's time in the window the probes of each kind were attached
// and recorded, for kinds whose events nobody else counts: those that are not in known. With
// several plans of a kind the least observed one counts.
func (parts *CoveredParts) Extents(p *guest.Process, known []profile.Extent) (list []profile.Extent) {
	least := map[profile.EventKind]profile.Extent{}
	for c, part := range parts.of {
		if slices.ContainsFunc(known, func(e profile.Extent) bool { return e.Subject == c.Kind.String() }) {
			continue
		}
		t, ok := c.followedIn(p.Identity())
		if !ok {
			continue
		}
		if c.Everybody {
			t = followedTime{p.Noticed, math.MaxInt64}
		}
		e, there := parts.extent(c, &part, t, p.Noticed)
		if other, ok := least[c.Kind]; there && (!ok || e.Share() < other.Share()) {
			least[c.Kind] = e
		}
	}
	for kind := range profile.EventKinds {
		if e, ok := least[kind]; ok {
			list = append(list, e)
		}
	}
	return list
}

// NotAttached is the reason of an Extent that estimates what there was before probes observed a
// process.
const NotAttached = "the agent was not attached yet (estimated from the rate since then)"

// LateShare returns for how long probes of the kind did not observe p at the beginning of the
// window, as a multiple of the rest of the window. It returns 0 if that time is too short to count,
// or is all of the window.
func (parts *CoveredParts) LateShare(kind profile.EventKind, p *guest.Process) float64 {
	var late, there time.Duration
	for c := range parts.of {
		if t, ok := c.followedIn(p.Identity()); ok && c.Kind == kind && !c.Everybody {
			from := max(parts.began, p.Noticed)
			late = max(late, min(max(t.from, c.BornAt()), parts.ended)-from)
			there = parts.ended - from
		}
	}
	if late < attachTime || late >= there {
		return 0
	}
	return late.Seconds() / (there - late).Seconds()
}

// AddLate adds to extents of the kind what there was before probes observed p, at the rate since
// then: what a VM counts is read from then on.
func (parts *CoveredParts) AddLate(kind profile.EventKind, p *guest.Process, extents []profile.Extent) {
	share := parts.LateShare(kind, p)
	if share == 0 {
		return
	}
	for i := range extents {
		if e := &extents[i]; e.Subject == kind.String() {
			before := e.There * share
			e.There += before
			e.Miss(before, NotAttached)
		}
	}
}

// extent is that of one plan in the time of a process, which was noticed then; ok is false if the
// process was not there in the window.
func (parts *CoveredParts) extent(
	c *Coverage, part *coveredPart, t followedTime, noticed time.Duration,
) (e profile.Extent, ok bool) {
	from, to := max(parts.began, noticed), min(parts.ended, t.to)
	there := to - from
	if there <= 0 {
		return e, false
	}
	// A process that was noticed late was followed for the rest of its time; how that was observed
	// is known of all of the time only.
	followed := max(to-max(from, t.from, c.BornAt()), 0)
	observed := min(followed.Seconds()*part.share(), there.Seconds())
	seen := observed * (1 - parts.lost)
	e = profile.Extent{
		Subject: c.Kind.String(), What: fmt.Sprintf("process time for %s", c.What), Unit: "nanoseconds",
		Source: "the lifetime of the process",
		There:  float64(there), Observed: 1e9 * seen,
	}
	if late := there - followed; late > attachTime {
		e.Miss(float64(late), "the probes were not attached yet")
	}
	if unseen := followed.Seconds() - observed; part.unsure() && part.cuts > 0 {
		e.Miss(0, "they were so many for a moment that their probes were removed to stay within the budget")
	} else if unseen > attachTime.Seconds() {
		e.Miss(1e9*unseen, "they were recorded part of the time to stay within the budget")
	}
	if lost := observed - seen; lost > 0 {
		e.Miss(1e9*lost, "records were lost")
	}
	return e, true
}

// attachTime is what attaching and detaching probes takes.
const attachTime = 40 * time.Millisecond
