package sink

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// ErrNoContexts is the error of Contexts if all stacks of a profile were walked. It tells how to get one where not.
var ErrNoContexts = errors.New("the profile does not tell how contexts were found: record one with vmprof-agent record --context=chain")

// Contexts writes how the contexts in a profile were found where not every stack was walked, a line for each process:
// Table 1 of Inoue and Nakatani (OOPSLA 2009, section 7.3), also for call sites, which their links do not have; how
// many samples were placed in which way; and, if that was checked, how many of them rightly. Below are the hottest
// contexts, and the hottest edges if the profile has entries. Nil options are DefaultViewOptions. It fails if every
// stack was walked.
func Contexts(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	lines, err := ToldContexts(p)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return ErrNoContexts
	}
	v, err := newView(p, true)
	if err != nil {
		return err
	}
	t := newContextTables(lines, opts, bufio.NewWriter(w))
	t.learned()
	t.unique()
	t.found()
	t.checked()
	hot := hotContexts{view: v, opts: opts, out: t.out}
	hot.contexts()
	hot.edges()
	return flush(t.out, "contexts")
}

// contextTables writes what the comments of a profile say of contexts.
type contextTables struct {
	rows    []*ProcessContexts // the busiest process first
	windows int                // that they are sums of; 0 or 1 for none
	opts    *ViewOptions
	out     *bufio.Writer
	tables  int // written so far
}

func newContextTables(lines []ProcessContexts, opts *ViewOptions, out *bufio.Writer) *contextTables {
	t := &contextTables{rows: sumContexts(lines), opts: opts, out: out}
	windows := make(map[int64]bool)
	for _, l := range lines {
		windows[l.Window] = true
	}
	t.windows = len(windows)
	slices.SortStableFunc(t.rows, func(a, b *ProcessContexts) int {
		return cmp.Or(cmp.Compare(b.samples(), a.samples()), strings.Compare(a.Comm, b.Comm), cmp.Compare(a.PID, b.PID))
	})
	return t
}

// samples are those of a line, as a number that large counts of a hostile file cannot wrap.
func (l *ProcessContexts) samples() float64 { return float64(l.Walked) + float64(l.Linked) }

// table writes a row for each process that has cells; without any it writes nothing.
func (t *contextTables) table(title string, head [][]string, cells func(*ProcessContexts) []string) {
	var g grid
	for _, r := range t.rows {
		if c := cells(r); c != nil {
			name := r.process()
			g.rows = append(g.rows, gridRow{c, func(width int) string { return keepEnd(name, width) }}) // with the pid
		}
	}
	if len(g.rows) == 0 {
		return
	}
	for i, h := range head {
		g.head = append(g.head, gridRow{cells: h})
		if i == len(head)-1 {
			g.head[i].name = heading("process")
		}
	}
	if t.tables++; t.tables > 1 {
		t.out.WriteByte('\n')
	}
	writeFolded(t.out, title, t.opts.Width)
	var rest []gridRow
	g.rows, rest = first(t.opts.N, g.rows)
	g.write(t.out, t.opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(t.out, "%s\n", plural(len(rest), "more line"))
	}
}

// chained says that contexts of the process were learned: of a thread of the kernel there are none.
func (l *ProcessContexts) chained() bool {
	return l.Mode == profile.ContextChain && (l.Nodes > 0 || l.Shared > 0)
}

// learned is the left half of Table 1.
func (t *contextTables) learned() {
	title := "Contexts learned by chaining, after Table 1 of Inoue and Nakatani (OOPSLA 2009)"
	if t.windows > 1 {
		title += ", as of the last window"
	}
	t.table(title, [][]string{
		{"", "with several callers", "", "nodes per"},
		{"nodes", "at one depth", "methods", "method"},
	}, func(l *ProcessContexts) []string {
		if !l.chained() {
			return nil
		}
		perMethod := "-"
		if l.Methods > 0 {
			perMethod = fmt.Sprintf("%.1f", float64(l.Nodes)/float64(l.Methods))
		}
		return []string{
			fmt.Sprint(l.Nodes), fmt.Sprintf("%d (%s)", l.Shared, percent(float64(l.Shared), float64(l.Nodes))),
			fmt.Sprint(l.Methods), perMethod,
		}
	})
}

// unique is the right half of Table 1, twice.
func (t *contextTables) unique() {
	t.table("Samples whose callers are unique for so many levels, by method and depth as in the paper, and by call site, too",
		[][]string{
			{"depth", "depth", "depth", "site", "site", "site"},
			{">= 1", ">= 3", "all", ">= 1", ">= 3", "all"},
		}, func(l *ProcessContexts) (cells []string) {
			if !l.chained() {
				return nil
			}
			for _, counts := range [][3]uint64{l.ByDepth, l.BySite} {
				for _, n := range counts {
					cells = append(cells, percent(float64(n), l.samples()))
				}
			}
			return cells
		})
}

// found tells in which ways samples were placed.
func (t *contextTables) found() {
	title := "How the contexts of samples were found"
	if t.windows > 1 {
		title += fmt.Sprintf(", in %d windows", t.windows)
	}
	before := t.tables
	t.table(title, [][]string{{"samples", "walked", "linked", "ambiguous", "fitted", "unplaced"}}, func(l *ProcessContexts) []string {
		cells := []string{fmt.Sprintf("%.0f", l.samples())}
		for _, n := range []uint64{l.Walked, l.Linked, l.Ambiguous, l.Fitted, l.Unplaced} {
			cells = append(cells, percent(float64(n), l.samples()))
		}
		return cells
	})
	if t.tables > before {
		writeFolded(t.out, "linked: not walked to the root; of these, ambiguous: several contexts fit and share the weight, "+
			"fitted: none fits, and that of a possible caller or callee was taken, unplaced: nothing is known beyond the first caller", t.opts.Width)
	}
}

// checked tells how often the contexts that were found are right.
func (t *contextTables) checked() {
	t.table("Samples that were walked, too, as a check: the callers are right for so many levels",
		[][]string{{"checked", ">= 1", ">= 3", "all"}}, func(l *ProcessContexts) []string {
			if l.Check == nil {
				return nil
			}
			cells := []string{fmt.Sprint(l.Check.Samples)}
			for _, n := range l.Check.Right {
				cells = append(cells, percent(float64(n), float64(l.Check.Samples)))
			}
			return cells
		})
}

// percent writes the share that part is of all.
func percent(part, all float64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/all)
}
