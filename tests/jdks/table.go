package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// print prints a line for each verdict.
func (r result) print(w io.Writer) error {
	table := report.Table{Header: []string{r.String(), ""}}
	if r.absent != "" {
		table.Add("not in this JDK", r.absent)
	}
	for _, v := range r.verdicts {
		table.Add(v.feature, v.String())
	}
	if err := table.Print(w); err != nil {
		return err
	}
	if r.err != nil {
		fmt.Fprintln(w, "error:", r.err)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func (v verdict) String() string {
	return [...]string{right: "ok", silent: "missing, and said", wrong: "WRONG"}[v.state] + ": " + v.found
}

// tables are those of waits by cause, after all others unless only they were measured.
func tables(results []result, waits bool) (all []harness.Table) {
	if !waits {
		all = []harness.Table{
			{Marker: "features", Table: featureTable(results)}, {Marker: "setups", Table: setupTable(results)},
			{Marker: "gaps", Table: gapTable(results, features)},
		}
	}
	return append(all, harness.Table{Marker: "waits", Table: waitTable(results)},
		harness.Table{Marker: "ways", Table: wayTable(results)},
		harness.Table{Marker: "wait-gaps", Table: gapTable(results, waitFeatures)})
}

// releases are the JDKs that were tried, oldest first.
func releases(results []result) (releases []string) {
	sorted := slices.SortedStableFunc(slices.Values(results), func(a,
		b result) int {
		return cmp.Compare(a.jdk.Version, b.jdk.Version)
	})
	for _, r := range sorted {
		if !slices.Contains(releases, r.jdk.Release) {
			releases = append(releases, r.jdk.Release)
		}
	}
	return releases
}

// featureTable has a row for each feature and a column for each JDK: what holds in all setups, in
// some, or as the JDK comes in none.
func featureTable(results []result) report.Table {
	table := report.Table{Header: append([]string{"feature"}, releases(results)...)}
	for _, feature := range features {
		row := []string{feature}
		for _, release := range table.Header[1:] {
			row = append(row, holds(results, feature, release))
		}
		table.Add(row...)
	}
	return table
}

// holds says where a feature holds on a JDK.
func holds(results []result, feature, release string) string {
	setups, good, bad := 0, 0, 0
	plainly := true
	for _, r := range results {
		v, judged := r.verdict(feature)
		if r.jdk.Release != release || !judged {
			continue
		}
		setups++
		switch v.state {
		case right:
			good++
		case wrong:
			bad++
		}
		plainly = plainly && (r.name != plain || v.state == right)
	}
	word := "yes"
	switch {
	case setups == 0:
		return ""
	case good == setups:
	case plainly:
		word = fmt.Sprintf("partly: %d of %d setups", good, setups)
	default:
		word = fmt.Sprintf("no: %d of %d setups", good, setups)
	}
	if bad > 0 {
		word += fmt.Sprintf(" (%s in %d)", wrongWord, bad)
	}
	return word
}

const wrongWord = "WRONG"

func (r result) verdict(feature string) (verdict, bool) {
	i := slices.IndexFunc(r.verdicts, func(v verdict) bool { return v.feature == feature })
	if i < 0 {
		return verdict{}, false
	}
	return r.verdicts[i], true
}

// setupTable has a row for each setup: how many features hold.
func setupTable(results []result) report.Table {
	table := report.Table{Header: append([]string{"setup"}, releases(results)...)}
	for _, s := range setups {
		row := []string{s.name}
		for _, release := range table.Header[1:] {
			i := slices.IndexFunc(results, func(r result) bool { return r.name == s.name && r.jdk.Release == release })
			if i < 0 {
				row = append(row, "")
				continue
			}
			row = append(row, results[i].summary())
		}
		if slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "" }) {
			table.Add(row...)
		}
	}
	return table
}

func (r result) summary() string {
	switch {
	case r.absent != "":
		return ""
	case r.untried:
		return notRun
	case r.err != nil:
		return "error"
	}
	good := 0
	for _, feature := range features {
		if v, judged := r.verdict(feature); judged && v.state == right {
			good++
		}
	}
	if good == len(features) {
		return "all"
	}
	return fmt.Sprintf("%d of %d", good, len(features))
}

// gapTable has a row for each feature and JDK where it does not hold, and the same is found: in
// which setups, and what.
func gapTable(results []result, features []string) report.Table {
	table := report.Table{Header: []string{"feature", "JDK", "setups", "found"}}
	for _, feature := range features {
		for _, release := range releases(results) {
			add(&table, results, feature, release)
		}
	}
	for _, r := range results {
		if r.err != nil {
			line, _, _ := strings.Cut(r.err.Error(), "\n")
			table.Add("all", r.jdk.Release, r.name, line)
		}
	}
	return table
}

// add adds the rows of one feature and JDK, a row for each state with the first setup's words.
func add(table *report.Table, results []result, feature, release string) {
	for _, state := range []state{silent, wrong} {
		var where []string
		found, all := "", 0
		for _, r := range results {
			v, judged := r.verdict(feature)
			if r.jdk.Release != release || !judged {
				continue
			}
			all++
			if v.state != state {
				continue
			}
			where = append(where, r.name)
			found = cmp.Or(found, verdict{state: state, found: v.found}.String())
		}
		switch {
		case len(where) == 0:
		case len(where) == all:
			table.Add(feature, release, "all", found)
		default:
			table.Add(feature, release, strings.Join(where, ", "), found)
		}
	}
}
