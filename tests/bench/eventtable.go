package main

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// eventAim is how much CPU time of a guest the recording of a kind of events may take at its defaults, over what it takes
// without.
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
			cells = append(cells, c.cpu.atMost(eventAim))
		}
		table.Add(cells...)
	}
	return table
}

// suiteCosts are all ratios of a kind together, whatever the program of the suite: there are more of them, so that their
// median is known better. There is none of a kind that only one program was recorded with.
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
			fmt.Sprintf("%.2f", 100*per(float64(c.agent), float64(c.used.wall))),
		)
	}
	return table
}
