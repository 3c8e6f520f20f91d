package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// notRun is what a table has of cells that were not tried.
const notRun = "not run"

// waitTable has a row for each setup that was tried: the error of the time, the share with the
// right cause, and that with whole stacks, each of the worst of all ways to wait.
func waitTable(results []result) report.Table {
	table := report.Table{Header: append([]string{"setup"}, releases(results)...)}
	for _, s := range setups {
		row := []string{s.name}
		for _, release := range table.Header[1:] {
			i := slices.IndexFunc(results, func(r result) bool { return r.name == s.name && r.jdk.Release == release })
			if i < 0 {
				row = append(row, "")
				continue
			}
			row = append(row, results[i].waits())
		}
		if slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "" && cell != notRun }) {
			table.Add(row...)
		}
	}
	return table
}

// waits is what the setup's worst ways to wait are like.
func (r result) waits() string {
	switch {
	case r.absent != "":
		return ""
	case r.untried:
		return notRun
	case len(r.ways) == 0:
		return "error"
	}
	return worstOf(r.ways)
}

// worstOf has the worst figures of ways that have a thread.
func worstOf(ways []way) string {
	off, right, whole := 0.0, 1.0, 1.0
	for _, w := range ways {
		if !w.occupies() {
			continue
		}
		if math.Abs(w.error()) > math.Abs(off) {
			off = w.error()
		}
		right, whole = min(right, w.Right), min(whole, w.Whole)
	}
	return fmt.Sprintf("%+.1f / %.1f / %.1f", 100*off, 100*right, 100*whole)
}

// wayTable has a row for each way to wait: the same figures, each of the worst of all setups; for
// those without a thread how much is recorded.
func wayTable(results []result) report.Table {
	table := report.Table{Header: append([]string{"method", "cause"}, releases(results)...)}
	type row struct{ method, cause string }
	var rows []row
	found := map[string][]way{} // by method, cause and release
	for _, r := range results {
		for _, w := range r.ways {
			if of := (row{w.Method, w.Cause}); !slices.Contains(rows, of) {
				rows = append(rows, of)
			}
			key := w.Method + w.Cause + r.jdk.Release
			found[key] = append(found[key], w)
		}
	}
	for _, of := range rows {
		cells := []string{of.method, of.cause}
		for _, release := range table.Header[2:] {
			cells = append(cells, wayCell(found[of.method+of.cause+release]))
		}
		table.Add(cells...)
	}
	return table
}

func wayCell(ways []way) string {
	switch {
	case len(ways) == 0:
		return ""
	case ways[0].occupies():
		return worstOf(ways)
	}
	most := 0.0
	for _, w := range ways {
		most = max(most, w.recorded())
	}
	return fmt.Sprintf("%.1f recorded", 100*most)
}
