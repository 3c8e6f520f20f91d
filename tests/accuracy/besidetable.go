package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// besideTable has a row for each guest, flag, JDK and contender.
func besideTable(results []besideResult) report.Table {
	table := report.Table{Header: []string{
		"guest", "JDK", "debug info", "profiler", "samples", "of those due", "error, any frame", "error, innermost",
		"right", "caller only", "wrong", "no Java method",
	}}
	for _, r := range results {
		debug := "no"
		if r.debug {
			debug = "yes"
		}
		taken := fmt.Sprintf("%.0f %%", 100*float64(r.samples)/r.due())
		row := []string{r.program.Name, r.jdk.Release, debug, string(r.contender), fmt.Sprint(r.samples), taken}
		row = append(row, signed(r.off(guests.Total)))
		if r.right+r.caller+r.wrong == 0 {
			row = append(row, "", "", "", "")
		} else {
			row = append(row, signed(r.off(guests.Self)), r.cell(r.right), r.cell(r.caller), r.cell(r.wrong))
		}
		row = append(row, r.cell(r.nameless))
		if r.contender == thisAgent && !r.accurate() {
			row[len(row)-1] += " " + report.Verdict(false)
		}
		table.Add(row...)
	}
	return table
}

// cell is a share of the samples in a table.
func (t besideTally) cell(samples int64) string { return fmt.Sprintf("%.1f %%", 100*t.share(samples)) }

// signed is the largest error, in percentage points.
func signed(errors []float64) string {
	if len(errors) == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f", 100*largest(errors))
}
