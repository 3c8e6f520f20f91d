package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A chainedTree is a row of table 1 of Inoue and Nakatani, "How a Java VM Can Get More from a Hardware Performance Monitor"
// (OOPSLA 2009, section 7.3): the tree that chaining learned, and for which part of the events, in percent, the callers
// were known for sure.
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

// paperTable is table 1 with the last window of each program, of the last setting, beside the paper's programs. Links of
// today have call sites, too, which the paper's have not.
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
