package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// tables has a row for each graph of each program, with columns for each recording, and the means of code that C2 compiled.
func (s *hotspotCalls) tables() []namedTable {
	table := report.Table{Header: []string{"program", "JDK", "compiled with", "graph"}}
	for _, length := range s.how.recordings {
		table.Header = append(table.Header, fmt.Sprintf("timer, %v", length), fmt.Sprintf("estimate, %v", length))
	}
	table.Header = append(table.Header, "with sites", "true rates", "compared %", "cost %", "")
	for _, row := range s.rows() {
		table.Add(row.cells()...)
	}
	for _, kind := range []string{physical, logical} {
		if s.results[0].alone() {
			break
		}
		if cells := s.mean(kind); cells != nil {
			table.Add(cells...)
		}
	}
	return []namedTable{{s.table, table}}
}

// A hotspotRow is one graph of one program, in the recordings' order.
type hotspotRow []hotspotResult

func (s *hotspotCalls) rows() (rows []hotspotRow) {
	type key struct {
		hotspotTrial
		kind string
	}
	index := map[key]int{}
	for _, r := range s.results {
		k := key{r.hotspotTrial, r.kind}
		i, known := index[k]
		if !known {
			i = len(rows)
			index[k] = i
			rows = append(rows, nil)
		}
		rows[i] = append(rows[i], r)
	}
	return rows
}

func (row hotspotRow) cells() []string {
	last := row[len(row)-1]
	cells := []string{last.program, last.jdk.Release, last.how(), last.kind}
	better := true
	for _, r := range row {
		cells = append(cells, rounded(r.timer), rounded(r.found))
		better = better && r.better()
	}
	verdict := report.Verdict(better)
	if last.alone() {
		verdict = fmt.Sprintf("aim %.0f: %s", last.aim(last.kind), report.Verdict(last.found >= last.aim(last.kind)))
	}
	return append(cells, rounded(last.sites), rounded(last.bound), rounded(100*last.covered), fmt.Sprintf("%.2f", 100*last.cost), verdict)
}

// mean is a row with the means over all programs and both ways to compile; nil if there is nothing of that kind. The
// aim is that of the longest recording.
func (s *hotspotCalls) mean(kind string) []string {
	cells := []string{"mean", "", "", kind}
	var n float64
	var mean hotspotResult
	for _, length := range s.how.recordings {
		n, mean = 0, hotspotResult{}
		for _, r := range s.results {
			if r.kind == kind && r.length == length {
				n++
				mean.timer += r.timer
				mean.found += r.found
				mean.sites += r.sites
				mean.bound += r.bound
			}
		}
		cells = append(cells, rounded(mean.timer/n), rounded(mean.found/n))
	}
	if n == 0 {
		return nil
	}
	aim := s.results[0].aim(kind)
	verdict := fmt.Sprintf("aim %.0f: %s", aim, report.Verdict(mean.found/n >= aim))
	return append(cells, rounded(mean.sites/n), rounded(mean.bound/n), "", "", verdict)
}

func rounded(x float64) string { return fmt.Sprintf("%.0f", x) }
