package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// An eventAccount is what the agent says of a recording of events.
type eventAccount struct {
	events, lost uint64
	hits         uint64        // hits of probes, of which some are events
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
	a = eventAccount{events: e.Observed, lost: profile.Sum(e.Counts.Dropped) + profile.Sum(e.Counts.Discarded),
		hits: e.Counts.Hits, cost: e.Counts.Cost}
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

	// CPU time and wall time of the guest, recorded over not recorded, each segment beside the two
	// around it.
	cpu, wall harness.Ratio
	// CPU time in segments that nobody watched over that in the two such segments around it: how
	// far from 1 a ratio is by chance.
	control harness.Ratio

	// All recordings together.
	recordings int
	used       usage // what the guest used
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
	c.cpu, c.wall, c.control = harness.RatioOf(c.ratios.cpu), harness.RatioOf(c.ratios.wall),
		harness.RatioOf(c.ratios.control)
}

// eventCostOf compares the segments of a kind with their neighbours.
func eventCostOf(turns *harness.Turns[string, eventSegment], guest, kind string) eventCost {
	c := eventCost{guest: guest, kind: kind}
	c.ratios.cpu, c.ratios.control = turns.Ratios(kind, cpuUsed)
	c.ratios.wall, _ = turns.Ratios(kind, wallUsed)
	for _, turn := range turns.On {
		if turn.Kind != kind {
			continue
		}
		c.recordings++
		c.used.add(turn.Sample.usage)
		c.agent += turn.Sample.agent
		c.account.add(turn.Sample.account)
	}
	c.reckon()
	return c
}

func cpuUsed(s eventSegment) float64  { return float64(s.cpu) }
func wallUsed(s eventSegment) float64 { return float64(s.wall) }

// said is the share of the guest's CPU time that the agent says it took.
func (c eventCost) said() float64 { return harness.Per(float64(c.account.cost), float64(c.used.cpu)) }

// perSecond is how many of something there were in a second of the recordings.
func (c eventCost) perSecond(n uint64) float64 { return harness.Per(float64(n), c.used.wall.Seconds()) }

// nanosPerEvent is what one event costs with all hits that were not told, in nanoseconds.
func (c eventCost) nanosPerEvent() float64 {
	return harness.Per(float64(c.account.cost), float64(c.account.events))
}

// eventAim is how much CPU time of a guest the recording of a kind of events may take at its
// defaults, over what it takes without.
const eventAim = 1.01

// wholeSuite is the row of all programs of the suite together.
const wholeSuite = "suite"

// eventTable is what guests pay. If nothing is judged there is no aim.
func eventTable(costs []eventCost, judged bool) report.Table {
	table := report.Table{Header: []string{"guest", "events", "CPU time", "nobody", "wall time"}}
	if judged {
		table.Header = append(table.Header, fmt.Sprintf("CPU time, aim: ≤ %g", eventAim))
	}
	for _, c := range slices.Concat(costs, suiteCosts(costs)) {
		cells := []string{c.guest, c.kind, c.cpu.String(), c.control.String(), c.wall.String()}
		if judged {
			cells = append(cells, c.cpu.AtMost(eventAim))
		}
		table.Add(cells...)
	}
	return table
}

// suiteCosts are all ratios of a kind together, whatever the program of the suite: there are more
// of them, so that their median is known better. There is none of a kind that only one program was
// recorded with.
func suiteCosts(costs []eventCost) (together []eventCost) {
	programs := map[string]int{} // by kind
	for _, c := range costs {
		if _, ok := lockers[c.guest]; ok {
			continue
		}
		if programs[c.kind] == 0 {
			together = append(together, eventCost{guest: wholeSuite, kind: c.kind})
		}
		programs[c.kind]++
		i := slices.IndexFunc(together, func(all eventCost) bool { return all.kind == c.kind })
		together[i].ratios.add(c.ratios)
	}
	for i := range together {
		together[i].reckon()
	}
	return slices.DeleteFunc(together, func(c eventCost) bool { return programs[c.kind] < 2 })
}

// eventOwnTable is what the agent says of the same recordings, and what it used itself.
func eventOwnTable(costs []eventCost) report.Table {
	table := report.Table{Header: []string{
		"guest", "events", "by the agent's account, % of CPU time", "hits/s", "events/s", "lost", "ns an event",
		"recordings with a rest", "agent, % of a core",
	}}
	for _, c := range costs {
		nanos := ""
		if c.account.events > 0 {
			nanos = fmt.Sprintf("%.0f", c.nanosPerEvent())
		}
		table.Add(c.guest, c.kind,
			fmt.Sprintf("%.3f", 100*c.said()),
			fmt.Sprintf("%.1f", c.perSecond(c.account.hits)), fmt.Sprintf("%.1f", c.perSecond(c.account.events)),
			fmt.Sprint(c.account.lost), nanos,
			fmt.Sprintf("%d of %d", c.account.rested, c.recordings),
			fmt.Sprintf("%.2f", 100*harness.Per(float64(c.agent), float64(c.used.wall))),
		)
	}
	return table
}
