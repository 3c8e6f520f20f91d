package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planWaitRows makes recordings of threads whose waits are too short to record each, and counts how
// often the interval of a method's time contains what the program measured: of 100, 95 should.
func planWaitRows(jdks []jvm.JDK) plan {
	return harness.Trials[meter, waitRowTrial, waitRowResult]{
		All: func(short bool) (trials []waitRowTrial) {
			for _, threads := range []int{3, 12, 60} {
				trials = append(trials, waitRowTrial{threads, waitRowRecordings, jdks[0]})
			}
			if short {
				return []waitRowTrial{{12, 1, jdks[0]}}
			}
			return trials
		},
		Run: harness.OneByOne(meter.recordWaitRows),
		Tables: func(results []waitRowResult) []harness.Table {
			return []harness.Table{{Marker: "events-wait-rows", Table: waitRowTable(results)}}
		},
		OK: func(results []waitRowResult) bool {
			return !slices.ContainsFunc(results, func(r waitRowResult) bool { return !r.ok() })
		},
	}.Plan
}

const (
	waitRowRecordings = 20
	waitRowMillis     = 3000
	// waitRowTolerance is how precisely the program knows its time: a thread is in a method before
	// it reads its clock, and after.
	waitRowTolerance = 0.01
)

// A waitRowTrial is some recordings of that many threads.
type waitRowTrial struct {
	threads, recordings int
	jdk                 jvm.JDK
}

func (t waitRowTrial) String() string {
	return fmt.Sprintf("wait rows, %d threads, %v", t.threads, t.jdk)
}

// A dozeRow is a method in a report, and what the program says of it.
type dozeRow struct {
	kind, method string
	truth        time.Duration
	events.Interval
}

func (r dozeRow) holds() bool {
	return r.Holds(r.truth, time.Duration(waitRowTolerance*float64(r.truth)))
}

// A waitRowResult is the result of a trial.
type waitRowResult struct {
	waitRowTrial
	rows []dozeRow
}

// ok allows for chance: of 100 intervals, 88 are enough, as the methods of a recording share their
// draws.
func (r waitRowResult) ok() bool {
	known, held := 0, 0
	for _, row := range r.rows {
		if row.Known {
			known++
			if row.holds() {
				held++
			}
		}
	}
	return r.recordings == 1 || float64(held) >= 0.88*float64(known)
}

// recordWaitRows makes the recordings of a trial.
func (m meter) recordWaitRows(ctx context.Context, t waitRowTrial) (r waitRowResult, err error) {
	r.waitRowTrial = t
	guest, err := events.Start(ctx, t.jdk, events.Dozing)
	if err != nil {
		return r, err
	}
	defer guest.Close()
	if _, err := guest.Run(t.threads, waitRowMillis/2); err != nil {
		return r, err
	}
	for range t.recordings {
		s, err := m.seeRun(ctx, guest, t.threads, waitRowMillis, "-e", "offcpu,wall")
		if err != nil {
			return r, err
		}
		rows, err := judgeWaitRows(s)
		if err != nil {
			return r, err
		}
		r.rows = append(r.rows, rows...)
	}
	return r, nil
}

// judgeWaitRows compares the methods of reports with the truth.
func judgeWaitRows(s seen) (rows []dozeRow, err error) {
	offCPU, err := waitIntervals(s.recording.Kinds["offcpu"])
	if err != nil {
		return nil, err
	}
	wall, err := waitIntervals(s.recording.Kinds["wall"])
	if err != nil {
		return nil, err
	}
	for _, away := range s.truth.Away {
		all := away.Sum
		for _, worked := range s.truth.Worked {
			if worked.Method == away.Method {
				all += worked.CPU
			}
		}
		if row, ok := offCPU[away.Method]; ok {
			rows = append(rows, dozeRow{"offcpu", away.Method, away.Sum, row})
		}
		if row, ok := wall[away.Method]; ok {
			rows = append(rows, dozeRow{"wall", away.Method, all, row})
		}
	}
	return rows, nil
}

// waitIntervals are the rows of the report of a profile.
func waitIntervals(p *pprof.Profile) (map[string]events.Interval, error) {
	view := eventviews.View(p)
	if view == nil {
		return nil, fmt.Errorf("the recording has no events")
	}
	var b bytes.Buffer
	if err := view(&b, p, &layout.Options{}); err != nil {
		return nil, err
	}
	return events.Intervals(b.String()), nil
}

// waitRowTable is how many intervals were printed of each method, and how many contain the truth.
func waitRowTable(results []waitRowResult) report.Table {
	table := report.Table{Header: []string{"threads", "kind", "method", "rows", "with an interval",
		"which contains the truth", "half of it, median", "furthest off"}}
	for _, r := range results {
		type key struct{ kind, method string }
		groups := map[key][]dozeRow{}
		var order []key
		for _, row := range r.rows {
			k := key{row.kind, row.method}
			if groups[k] == nil {
				order = append(order, k)
			}
			groups[k] = append(groups[k], row)
			all := key{row.kind, "all"}
			groups[all] = append(groups[all], row)
		}
		slices.SortStableFunc(order, func(a, b key) int { return bytes.Compare([]byte(a.kind), []byte(b.kind)) })
		for _, k := range append(order, key{"offcpu", "all"}, key{"wall", "all"}) {
			known, held, furthest := 0, 0, 0.0
			var widths []float64
			for _, row := range groups[k] {
				furthest = max(furthest, (row.Time-row.truth).Abs().Seconds()/row.truth.Seconds())
				if !row.Known {
					continue
				}
				known++
				widths = append(widths, row.Within.Seconds()/row.Time.Seconds())
				if row.holds() {
					held++
				}
			}
			slices.Sort(widths)
			median := "-"
			if len(widths) > 0 {
				median = fmt.Sprintf("%.0f %%", 100*widths[len(widths)/2])
			}
			table.Add(fmt.Sprint(r.threads), k.kind, k.method, fmt.Sprint(len(groups[k])), fmt.Sprint(known),
				fmt.Sprint(held), median, fmt.Sprintf("%.0f %%", 100*furthest))
		}
	}
	return table
}
