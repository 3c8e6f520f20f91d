package main

import (
	"fmt"
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

func (s *contexts) tables() []namedTable {
	switch s.study {
	case chainStudy:
		return []namedTable{
			{"contexts-chain", s.chainTable()},
			{"contexts-aims", s.aimsTable()},
			{"contexts-table1", s.paperTable()},
		}
	case everyStudy:
		return []namedTable{{"contexts-every", s.everyTable()}}
	case partialStudy:
		return []namedTable{{"contexts-partial", s.partialTable()}}
	case precisionStudy:
		return []namedTable{{"contexts-precision", s.precisionTable()}}
	}
	return nil
}

// A shareColumn is a column of shares.
type shareColumn struct {
	name string
	of   func(contextShares) float64
}

func walkedColumn() shareColumn {
	return shareColumn{"walked %", func(s contextShares) float64 { return s.walked }}
}

// rightColumns are those of samples that were not walked.
func rightColumns() []shareColumn {
	return []shareColumn{
		{"first caller", func(s contextShares) float64 { return s.right[oneLevel] }},
		{"first three", func(s contextShares) float64 { return s.right[threeLevels] }},
		{"whole context", func(s contextShares) float64 { return s.right[allLevels] }},
	}
}

func unsureColumns() []shareColumn {
	return []shareColumn{
		{"ambiguous", func(s contextShares) float64 { return s.ambiguous }},
		{"fitted", func(s contextShares) float64 { return s.fitted }},
		{"unplaced", func(s contextShares) float64 { return s.unplaced }},
	}
}

// allColumns are those of all samples.
func allColumns() []shareColumn {
	return []shareColumn{
		{"all: first three", func(s contextShares) float64 { return s.all[threeLevels] }},
		{"all: whole context", func(s contextShares) float64 { return s.all[allLevels] }},
	}
}

func chainColumns() (columns []shareColumn) {
	columns = append(columns, walkedColumn())
	columns = append(columns, rightColumns()...)
	columns = append(columns, unsureColumns()...)
	return append(columns, allColumns()...)
}

func names(columns []shareColumn) (names []string) {
	for _, c := range columns {
		names = append(names, c.name)
	}
	return names
}

// cells are a row's values in each column, those of all windows or settings in one cell.
func (r *contextRow) cells(columns []shareColumn) (cells []string) {
	for _, c := range columns {
		cells = append(cells, across(r.shares, func(s contextShares) string { return inPercent(c.of(s)) }))
	}
	return cells
}

// chainTable has a row for each program and setting, with a value for each window.
func (s *contexts) chainTable() report.Table {
	table := report.Table{Header: append([]string{"program", "sampled at"}, names(chainColumns())...)}
	table.Header = append(table.Header, "in Java %")
	for i, setting := range s.settings {
		for _, row := range withMean(s.byWindow(i)) {
			cells := append([]string{row.program, setting.name}, row.cells(chainColumns())...)
			table.Add(append(cells, inPercent(row.java))...)
		}
	}
	return table
}

// settingNames are the values that a table's cells have, in their order.
func (s *contexts) settingNames() string {
	return across(s.settings, func(s contextSetting) string { return s.name })
}

// everyTable has a row for each program, with a value for each N.
func (s *contexts) everyTable() report.Table {
	table := report.Table{Header: append([]string{"program", "N"}, names(chainColumns())...)}
	table.Header = append(table.Header, "in Java %")
	for _, row := range withMean(s.bySetting()) {
		cells := append([]string{row.program, s.settingNames()}, row.cells(chainColumns())...)
		table.Add(append(cells, inPercent(row.java))...)
	}
	return table
}

// partialTable has a row for each program, with a value for each K.
func (s *contexts) partialTable() report.Table {
	columns := append([]shareColumn{walkedColumn()}, rightColumns()...)
	columns = append(columns, shareColumn{"lost", func(s contextShares) float64 { return s.unplaced }})
	table := report.Table{Header: append([]string{"program", "K"}, names(columns)...)}
	table.Header = append(table.Header, "new frames", "of frames", "in Java %")
	for i, row := range withMean(s.bySetting()) {
		cells := append([]string{row.program, s.settingNames()}, row.cells(columns)...)
		fresh, frames := "", ""
		if i < len(s.results) { // not the mean
			recorded := s.results[i].recorded
			fresh = across(recorded, func(r contextRecording) string { return fmt.Sprintf("%.1f", r.fresh) })
			frames = across(recorded, func(r contextRecording) string { return fmt.Sprintf("%.0f", r.frames) })
		}
		table.Add(append(cells, fresh, frames, inPercent(row.java))...)
	}
	return table
}

// precisionTable has a row for each program, with a value for each interval.
func (s *contexts) precisionTable() report.Table {
	columns := []struct {
		name  string
		write func(contextRecording) string
	}{
		{"samples a window", func(r contextRecording) string {
			sum := r.sum()
			return fmt.Sprintf("%.0f", float64(sum.Walked+sum.Linked)/float64(len(r.windows)))
		}},
		{"hot methods: correlation", func(r contextRecording) string { return fourPlaces(r.likenessOf(hotMethods).correlation) }},
		{"overlap %", func(r contextRecording) string { return onePlace(r.likenessOf(hotMethods).overlap) }},
		{"PCCT: correlation", func(r contextRecording) string { return fourPlaces(r.likenessOf(partialCCT).correlation) }},
		{"overlap %", func(r contextRecording) string { return onePlace(r.likenessOf(partialCCT).overlap) }},
	}
	table := report.Table{Header: []string{"program", "an iteration takes", "interval"}}
	for _, c := range columns {
		table.Header = append(table.Header, c.name)
	}
	for i := range s.results {
		r := &s.results[i]
		cells := []string{r.program, roundedIteration(r), s.settingNames()}
		for _, c := range columns {
			cells = append(cells, across(r.recorded, c.write))
		}
		table.Add(cells...)
	}
	return table
}

// roundedIteration has two digits: of the reference guest it is some microseconds, of a compiler some seconds.
func roundedIteration(r *contextResult) string {
	digit := time.Duration(1)
	for r.iteration >= 100*digit {
		digit *= 10
	}
	return r.iteration.Round(digit).String()
}

func fourPlaces(v float64) string { return decimal(v, 4) }
func onePlace(v float64) string   { return decimal(v, 1) }

func decimal(v float64, places int) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.*f", places, v)
}
