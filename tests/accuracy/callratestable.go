package main

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

func (s *rates) tables() []namedTable {
	tables := []namedTable{{s.table, s.gridTable()}}
	if len(s.programs) > 1 {
		tables = append(tables, namedTable{s.table + "-programs", s.programsTable()})
	}
	return tables
}

// gridTable has the mean of all programs for each burst.
func (s *rates) gridTable() report.Table {
	table := report.Table{Header: []string{"SAMPLES"}}
	for _, stride := range strides {
		table.Header = append(table.Header, fmt.Sprintf("STRIDE %d", stride))
	}
	for _, samples := range samples {
		row := make([]string, 1+len(strides))
		row[0] = fmt.Sprint(samples)
		for i, stride := range strides {
			if k := slices.Index(s.bursts, profile.Burst{Stride: stride, Samples: samples}); k >= 0 {
				row[1+i] = s.cell(k)
			}
		}
		if slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "" }) {
			table.Add(row...)
		}
	}
	if control := s.control(); control != "" {
		table.Add(append([]string{"control", control}, make([]string, len(strides)-1)...)...)
	}
	return table
}

// cell has overhead, overlap and, in brackets, the ideal overlap in percent.
func (s *rates) cell(k int) string {
	if len(s.guests) == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f / %.0f (%.0f)", 100*s.mean((*paced).overhead, k), s.mean((*paced).overlap, k), s.mean((*paced).ideal, k))
}

// mean is that of all guests.
func (s *rates) mean(of func(*paced, int) float64, k int) float64 {
	var values []float64
	for _, g := range s.guests {
		values = append(values, of(g, k))
	}
	mean, _ := moments(values)
	return mean
}

// control is what the cells' overheads are where nothing is sampled, with their standard deviation.
func (s *rates) control() string {
	var means []float64
	for k := 1; k < len(s.bursts); k++ {
		means = append(means, 100*s.mean((*paced).control, k))
	}
	if len(means) < 2 || len(s.guests) == 0 {
		return ""
	}
	mean, deviation := moments(means)
	return fmt.Sprintf("%+.1f ± %.1f", mean, deviation)
}

// programsTable has rows for programs.
func (s *rates) programsTable() report.Table {
	table := report.Table{Header: []string{"program", "edges"}}
	for _, b := range shownBursts {
		table.Header = append(table.Header, burstName(b))
	}
	for _, g := range s.guests {
		row := []string{g.name, fmt.Sprint(g.recorded[0].truth.Len())}
		for _, b := range shownBursts {
			k := slices.Index(s.bursts, b)
			if k < 0 {
				row = append(row, "")
				continue
			}
			row = append(row, fmt.Sprintf("%+.1f / %.0f (%.0f)", 100*g.overhead(k), g.overlap(k), g.ideal(k)))
		}
		table.Add(row...)
	}
	return table
}
