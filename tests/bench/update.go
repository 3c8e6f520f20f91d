package main

import "github.com/vmprof-agent/vmprof-agent/tests/report"

// update rewrites the tables in the documentation.
func update(costs []cost, busy agentCost, first start) error {
	for _, section := range []struct {
		name  string
		table report.Table
	}{
		{"overhead", overheadTable(costs)},
		{"costs", ownTable(costs)},
		{"busy", busyTable(busy)},
		{"first", firstTable(first)},
	} {
		if err := report.Update(docs, section.name, section.table.Markdown()); err != nil {
			return err
		}
	}
	return nil
}
