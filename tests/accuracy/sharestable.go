package main

import (
	"fmt"
	"math"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// sharesTable has a row for each guest and JDK, and a column for each flavour with the largest error.
func sharesTable(results []result) report.Table {
	table := report.Table{Header: []string{"guest", "JDK"}}
	flavours := guests.Flavours()
	for _, flavour := range flavours {
		table.Header = append(table.Header, flavour.Name)
	}
	type key struct{ program, release string }
	rows := make(map[key][]string)
	var order []key
	for _, r := range results {
		k := key{r.program.Name, r.jdk.Release}
		if rows[k] == nil {
			rows[k] = append([]string{k.program, k.release}, make([]string, len(flavours))...)
			order = append(order, k)
		}
		for i, flavour := range flavours {
			if flavour.Name == r.flavour.Name {
				rows[k][2+i] = r.worst()
			}
		}
	}
	for _, k := range order {
		table.Add(rows[k]...)
	}
	return table
}

// worst is the verdict that came closest to its tolerance, or went furthest beyond, in percentage points.
func (r result) worst() string {
	var worst verdict
	used := -1.0
	for _, v := range r.verdicts {
		// A verdict without any tolerance has either used none of it or failed.
		part := math.Abs(v.measured-v.truth) / max(v.tolerance, 1e-9)
		if part > used {
			worst, used = v, part
		}
	}
	cell := fmt.Sprintf("%+.1f of ±%.1f", 100*(worst.measured-worst.truth), 100*worst.tolerance)
	if !worst.ok() {
		cell += " " + report.Verdict(false)
	}
	return cell
}
