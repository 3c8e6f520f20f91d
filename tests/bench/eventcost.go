package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// An eventAccount is what the agent says of a recording of events.
type eventAccount struct {
	events, lost uint64
	hits         uint64        // of probes, of which some are events
	cost         time.Duration // CPU time of the guest that the hits took, as the agent reckons
	rested       int           // recordings in which a probe was taken away for a while
}

// restRemark is in the remark on a probe that was taken away for a while.
const restRemark = "were not recorded all the time: "

// errNoAccount says that a profile is not one of events of one kind.
var errNoAccount = errors.New("the profile has no account of events of one kind")

// readEventAccount reads what the metadata of a profile says.
func readEventAccount(p *pprof.Profile) (a eventAccount, err error) {
	m, err := stored.MetadataOf(p)
	if err != nil {
		return a, fmt.Errorf("metadata of the profile: %w", err)
	}
	e := m.Events
	if e == nil || e.Mixed {
		return a, errNoAccount
	}
	a = eventAccount{events: e.Observed, lost: profile.Sum(e.Counts.Dropped) + profile.Sum(e.Counts.Discarded), hits: e.Counts.Hits, cost: e.Counts.Cost}
	if slices.ContainsFunc(m.Remarks, func(r string) bool { return strings.Contains(r, restRemark) }) {
		a.rested = 1
	}
	return a, nil
}

func (a *eventAccount) add(other eventAccount) {
	a.events += other.events
	a.lost += other.lost
	a.hits += other.hits
	a.cost += other.cost
	a.rested += other.rested
}

// An eventCost is what it costs to record one kind of events of one guest.
type eventCost struct {
	guest, kind string

	// CPU time and wall time of the guest, recorded over not recorded, each segment beside the two around it.
	cpu, wall ratio
	// CPU time in segments that nobody watched over that in the two such segments around it: how far from 1 a ratio is by
	// chance.
	control ratio

	// All recordings together.
	recordings int
	used       usage // of the guest
	agent      time.Duration
	account    eventAccount

	ratios eventRatios
}

// eventRatios are what ratios are the medians of.
type eventRatios struct{ cpu, wall, control []float64 }

func (r *eventRatios) add(other eventRatios) {
	r.cpu = append(r.cpu, other.cpu...)
	r.wall = append(r.wall, other.wall...)
	r.control = append(r.control, other.control...)
}

// reckon takes the medians.
func (c *eventCost) reckon() {
	c.cpu, c.wall, c.control = ratioOf(c.ratios.cpu), ratioOf(c.ratios.wall), ratioOf(c.ratios.control)
}

// eventCostOf compares the segments of a kind with their neighbours. Every other segment is watched, the first and the last
// are not. The control is the unwatched segment that follows, beside the unwatched ones around it.
func eventCostOf(segments []eventSegment, guest, kind string) eventCost {
	c := eventCost{guest: guest, kind: kind}
	for i := 1; i+1 < len(segments); i += 2 {
		s := segments[i]
		if s.kind != kind {
			continue
		}
		c.ratios.cpu = append(c.ratios.cpu, overBoth(cpuUsed, s, segments[i-1], segments[i+1]))
		c.ratios.wall = append(c.ratios.wall, overBoth(wallUsed, s, segments[i-1], segments[i+1]))
		if i+3 < len(segments) {
			c.ratios.control = append(c.ratios.control, overBoth(cpuUsed, segments[i+1], segments[i-1], segments[i+3]))
		}
		c.recordings++
		c.used.add(s.usage)
		c.agent += s.agent
		c.account.add(s.account)
	}
	c.reckon()
	return c
}

func cpuUsed(s eventSegment) time.Duration  { return s.cpu }
func wallUsed(s eventSegment) time.Duration { return s.wall }

// overBoth is what a segment used over the mean of two others.
func overBoth(what func(eventSegment) time.Duration, s, before, after eventSegment) float64 {
	return per(2*float64(what(s)), float64(what(before)+what(after)))
}

// said is the share of the guest's CPU time that the agent says it took.
func (c eventCost) said() float64 { return per(float64(c.account.cost), float64(c.used.cpu)) }

// perSecond is how many of something there were in a second of the recordings.
func (c eventCost) perSecond(n uint64) float64 { return per(float64(n), c.used.wall.Seconds()) }

// nanosPerEvent is what one event costs with all hits that were not told, in nanoseconds.
func (c eventCost) nanosPerEvent() float64 {
	return per(float64(c.account.cost), float64(c.account.events))
}
