package main

import (
	"fmt"
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

func (s *contexts) tables() []harness.Table {
	switch s.study {
	case chainStudy:
		return []harness.Table{
			{Marker: "contexts-chain", Table: s.chainTable()},
			{Marker: "contexts-aims", Table: s.aimsTable()},
			{Marker: "contexts-table1", Table: s.paperTable()},
		}
	case everyStudy:
		return []harness.Table{{Marker: "contexts-every", Table: s.everyTable()}}
	case partialStudy:
		return []harness.Table{{Marker: "contexts-partial", Table: s.partialTable()}}
	case precisionStudy:
		return []harness.Table{{Marker: "contexts-precision", Table: s.precisionTable()}}
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

// cells are a row's values in each column, with those of all windows or settings in one cell.
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

// settingNames are the names of the values in a table's cells, in order.
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
		{"hot methods: correlation",
			func(r contextRecording) string { return fourPlaces(r.likenessOf(hotMethods).correlation) }},
		{"overlap %", func(r contextRecording) string { return onePlace(r.likenessOf(hotMethods).overlap) }},
		{"PCCT: correlation",
			func(r contextRecording) string { return fourPlaces(r.likenessOf(partialCCT).correlation) }},
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

// roundedIteration has two digits: an iteration of the reference guest takes some microseconds, one
// of a compiler some seconds.
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

// The aims for chained contexts: these shares of the samples, in five programs of seven.
const (
	oneLevelAim    = 0.95
	threeLevelsAim = 0.90
	programsAim    = 5
)

// A contextReading is a definition of which contexts must be right.
type contextReading struct {
	name  string
	right func(contextShares) [3]float64
}

// contextReadings are a strict one and that of a profile's reader.
func contextReadings() []contextReading {
	return []contextReading{
		{"samples not walked", func(s contextShares) [3]float64 { return s.right }},
		{"all samples", func(s contextShares) [3]float64 { return s.all }},
	}
}

// A contextAim counts the programs whose contexts are right often enough. Programs without such
// samples do not count.
type contextAim struct{ one, three, programs int }

func (a *contextAim) add(right [3]float64) {
	a.programs++
	if right[oneLevel] >= oneLevelAim {
		a.one++
	}
	if right[threeLevels] >= threeLevelsAim {
		a.three++
	}
}

func (a contextAim) reached() bool { return min(a.one, a.three) >= programsAim }

// aimsTable has a row for each setting, window and reading.
func (s *contexts) aimsTable() report.Table {
	table := report.Table{Header: []string{
		"sampled at", "time", "right of", fmt.Sprintf("first caller in %.0f %%", 100*oneLevelAim),
		fmt.Sprintf("first three in %.0f %%", 100*threeLevelsAim), fmt.Sprintf("aim: %d programs", programsAim),
	}}
	for i, setting := range s.settings {
		programs := asPrograms(s.byWindow(i))
		for w := range s.length.windows {
			for _, reading := range contextReadings() {
				var aim contextAim
				for _, p := range programs {
					aim.add(reading.right(p.shares[w]))
				}
				table.Add(setting.name, s.length.when(w), reading.name,
					fmt.Sprintf("%d of %d", aim.one, aim.programs), fmt.Sprintf("%d of %d", aim.three, aim.programs),
					report.Verdict(aim.reached()))
			}
		}
	}
	return table
}

// A chainedTree is a row of table 1 of Inoue and Nakatani, "How a Java VM Can Get More from a
// Hardware Performance Monitor" (OOPSLA 2009, section 7.3): the tree that chaining learned, and the
// fraction of events, in percent, whose callers were certain.
type chainedTree struct {
	program                string
	nodes, shared, methods int // shared: nodes with several callers at the same depth
	one, three             float64
}

// chainedThen are the paper's: level-1 cache misses in compiled code, on POWER6.
func chainedThen() []chainedTree {
	return []chainedTree{
		{"SPECjbb2005", 346, 10, 122, 99.5, 99.2},
		{"compiler.compiler", 78264, 20184, 1477, 71.0, 52.5},
		{"derby", 1092, 8, 432, 98.9, 98.9},
		{"sunflow", 1039, 57, 104, 97.6, 94.6},
		{"xml.validation", 1745, 59, 442, 97.9, 95.6},
		{"serial", 1813, 36, 218, 90.8, 80.2},
		{"mpegaudio", 54, 0, 50, 99.2, 99.2},
		{"DayTrader", 37616, 2962, 2983, 91.9, 86.4},
	}
}

// tree is the last window of a recording, by {method, depth} as in the paper.
func (r *contextRecording) tree(program string) chainedTree {
	l := r.last()
	one, three := l.inPercent(l.ByDepth[oneLevel]), l.inPercent(l.ByDepth[threeLevels])
	return chainedTree{program, l.Nodes, l.Shared, l.Methods, one, three}
}

func (l *contextLine) inPercent(n uint64) float64 {
	return 100 * float64(n) / float64(l.Walked+l.Linked)
}

// perMethod is how many nodes a method has.
func (t chainedTree) perMethod() float64 { return float64(t.nodes) / float64(t.methods) }

// paperTable is table 1 with the last window of each program, of the last setting, next to the
// paper's programs. Our links have call sites, too, which the paper's have not.
func (s *contexts) paperTable() report.Table {
	table := report.Table{Header: []string{
		"", "program", "nodes", "several callers at one depth", "methods", "nodes per method",
		"known ≥ 1 level %", "≥ 3 levels %", "by site: ≥ 1 level %", "≥ 3 levels %", "in Java %",
	}}
	add := func(whose string, t chainedTree, more ...string) {
		table.Add(append([]string{whose, t.program, fmt.Sprint(t.nodes),
			fmt.Sprintf("%d (%.1f %%)", t.shared, 100*float64(t.shared)/float64(t.nodes)),
			fmt.Sprint(t.methods), onePlace(t.perMethod()), onePlace(t.one), onePlace(t.three)}, more...)...)
	}
	for i := range s.results {
		recorded := s.results[i].recorded
		r := &recorded[len(recorded)-1]
		l := r.last()
		add("here", r.tree(s.results[i].program),
			onePlace(l.inPercent(l.BySite[oneLevel])), onePlace(l.inPercent(l.BySite[threeLevels])),
			inPercent(s.results[i].row(r.java).java))
	}
	for _, t := range chainedThen() {
		add("paper", t, "", "", "")
	}
	return table
}
