package report

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// processContexts are the contexts of one process in all windows.
type processContexts struct{ stored.ProcessContexts }

// sumContexts adds up the windows of each process, in the order in which processes appear. Counts
// are sums over all windows. What was learned (nodes, shared, methods) is that of the last window,
// as it goes on growing.
func sumContexts(lines []stored.ProcessContexts) []*processContexts {
	type process struct {
		comm string
		pid  int64
		mode profile.ContextMode
	}
	var order []*processContexts
	index := make(map[process]*processContexts)
	for _, l := range lines {
		id := process{l.Comm, l.PID, l.Mode}
		sum := index[id]
		if sum == nil {
			sum = &processContexts{stored.ProcessContexts{Comm: l.Comm, PID: l.PID, Window: l.Window,
				Contexts: profile.Contexts{Mode: l.Mode}}}
			index[id] = sum
			order = append(order, sum)
		}
		sum.add(&l)
	}
	return order
}

// add adds the counts of l, which may be of a later window.
func (sum *processContexts) add(l *stored.ProcessContexts) {
	if l.Check != nil && sum.Check == nil {
		sum.Check = new(profile.ContextCheck)
	}
	if l.Window != sum.Window {
		sum.Window, sum.Nodes, sum.Shared, sum.Methods = l.Window, 0, 0, 0
	}
	// Two lines of one window are two programs of one name, the second executed by the first: two
	// trees.
	sum.Nodes += l.Nodes
	sum.Shared += l.Shared
	sum.Methods += l.Methods
	sum.Walked += l.Walked
	sum.Linked += l.Linked
	sum.Ambiguous += l.Ambiguous
	sum.Fitted += l.Fitted
	sum.Unplaced += l.Unplaced
	for i := range sum.ByDepth {
		sum.ByDepth[i] += l.ByDepth[i]
		sum.BySite[i] += l.BySite[i]
	}
	if l.Check != nil {
		sum.Check.Samples += l.Check.Samples
		for i := range sum.Check.Right {
			sum.Check.Right[i] += l.Check.Right[i]
		}
	}
}

// ErrNoContexts is the error of Contexts if all stacks of a profile were walked. It says how to
// record one where they were not.
var ErrNoContexts = errors.New("the profile has no information on contexts: record one with vmprof-agent record " +
	"--context=chain")

// Contexts writes how the contexts in a profile were found if not every stack was walked, a line
// for each process. The tables are Table 1 of Inoue and Nakatani (OOPSLA 2009, section 7.3), also
// with call sites, which their links do not have; the samples by how they were placed; and, if that
// was checked, how many were placed rightly. Below are the hottest contexts, and the hottest edges
// if the profile has entries. Nil options are layout.DefaultOptions. It fails if every stack was
// walked.
func Contexts(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	m, err := stored.MetadataOf(p)
	if err != nil && !errors.Is(err, stored.ErrNone) {
		return err
	}
	if err != nil || len(m.Contexts) == 0 {
		return ErrNoContexts
	}
	v, err := newView(p, byProcess)
	if err != nil {
		return err
	}
	t := newContextTables(m.Contexts, opts, bufio.NewWriter(w))
	t.learned()
	t.unique()
	t.found()
	t.checked()
	hot := hotContexts{view: v, opts: opts, out: t.out}
	hot.contexts()
	hot.edges()
	return layout.Flush(t.out, "contexts")
}

// contextTables writes what the metadata of a profile says of contexts.
type contextTables struct {
	rows    []*processContexts // the busiest process first
	windows int                // number of windows that they are sums of; 0 or 1 for none
	opts    *layout.Options
	out     *bufio.Writer
	tables  int // written so far
}

func newContextTables(lines []stored.ProcessContexts, opts *layout.Options, out *bufio.Writer) *contextTables {
	t := &contextTables{rows: sumContexts(lines), opts: opts, out: out}
	windows := make(map[int64]bool)
	for _, l := range lines {
		windows[l.Window] = true
	}
	t.windows = len(windows)
	slices.SortStableFunc(t.rows, func(a, b *processContexts) int {
		return cmp.Or(cmp.Compare(b.samples(), a.samples()), strings.Compare(a.Comm, b.Comm), cmp.Compare(a.PID, b.PID))
	})
	return t
}

// samples are those of a line, as a number that large counts of a hostile file cannot wrap.
func (l *processContexts) samples() float64 { return float64(l.Walked) + float64(l.Linked) }

// table writes a row for each process that has cells; without any it writes nothing.
func (t *contextTables) table(title string, head [][]string, cells func(*processContexts) []string) {
	var g layout.Grid
	for _, r := range t.rows {
		if c := cells(r); c != nil {
			name := r.Process()
			// Keep the end of the name: it has the pid.
			g.Rows = append(g.Rows, layout.Row{Cells: c, Name: func(width int) string {
				return layout.KeepEnd(name, width)
			}})
		}
	}
	if len(g.Rows) == 0 {
		return
	}
	for i, h := range head {
		g.Head = append(g.Head, layout.Row{Cells: h})
		if i == len(head)-1 {
			g.Head[i].Name = layout.Heading("process")
		}
	}
	if t.tables++; t.tables > 1 {
		t.out.WriteByte('\n')
	}
	layout.Fold(t.out, title, t.opts.Width)
	var rest []layout.Row
	g.Rows, rest = layout.First(t.opts.N, g.Rows)
	g.Write(t.out, t.opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(t.out, "%s\n", stored.Plural(len(rest), "more line"))
	}
}

// chained reports whether contexts of the process were learned: kernel threads have none.
func (l *processContexts) chained() bool {
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
	}, func(l *processContexts) []string {
		if !l.chained() {
			return nil
		}
		perMethod := "-"
		if l.Methods > 0 {
			perMethod = fmt.Sprintf("%.1f", float64(l.Nodes)/float64(l.Methods))
		}
		return []string{
			fmt.Sprint(l.Nodes), fmt.Sprintf("%d (%s)", l.Shared, stored.Percent(float64(l.Shared), float64(l.Nodes))),
			fmt.Sprint(l.Methods), perMethod,
		}
	})
}

// unique is the right half of Table 1, twice.
func (t *contextTables) unique() {
	t.table("Samples with unique callers for this many levels, by method and depth as in the paper, and with the "+
		"call site",
		[][]string{
			{"depth", "depth", "depth", "site", "site", "site"},
			{">= 1", ">= 3", "all", ">= 1", ">= 3", "all"},
		}, func(l *processContexts) (cells []string) {
			if !l.chained() {
				return nil
			}
			for _, counts := range [][3]uint64{l.ByDepth, l.BySite} {
				for _, n := range counts {
					cells = append(cells, stored.Percent(float64(n), l.samples()))
				}
			}
			return cells
		})
}

// found shows in which ways samples were placed.
func (t *contextTables) found() {
	title := "How the contexts of samples were found"
	if t.windows > 1 {
		title += fmt.Sprintf(", in %d windows", t.windows)
	}
	before := t.tables
	t.table(title, [][]string{{"samples", "walked", "linked", "ambiguous", "fitted", "unplaced"}},
		func(l *processContexts) []string {
			cells := []string{fmt.Sprintf("%.0f", l.samples())}
			for _, n := range []uint64{l.Walked, l.Linked, l.Ambiguous, l.Fitted, l.Unplaced} {
				cells = append(cells, stored.Percent(float64(n), l.samples()))
			}
			return cells
		})
	if t.tables > before {
		layout.Fold(t.out, "linked: not walked to the root; of these, ambiguous: several contexts fit and share the "+
			"weight, "+
			"fitted: none fits, and the context of a possible caller or callee is used, unplaced: unknown beyond the "+
			"first caller", t.opts.Width)
	}
}

// checked shows how often the contexts that were found are right.
func (t *contextTables) checked() {
	t.table("Check against full walks: samples with right callers for this many levels",
		[][]string{{"checked", ">= 1", ">= 3", "all"}}, func(l *processContexts) []string {
			if l.Check == nil {
				return nil
			}
			cells := []string{fmt.Sprint(l.Check.Samples)}
			for _, n := range l.Check.Right {
				cells = append(cells, stored.Percent(float64(n), float64(l.Check.Samples)))
			}
			return cells
		})
}

// hotContexts writes the hottest nodes and edges of a calling context tree: Whaley's lists of the
// partial one (Java Grande 2000), of which a reader sees what takes time and what is called often.
type hotContexts struct {
	*view
	opts *layout.Options
	out  *bufio.Writer
}

// contexts writes those with most samples of their own.
func (h *hotContexts) contexts() {
	n := h.opts.N
	if n == 0 {
		n = h.tree.Len()
	}
	hottest := h.tree.Hottest(n)
	if len(hottest) == 0 {
		return
	}
	g := layout.Grid{Head: []layout.Row{{Cells: []string{"share", h.unit}, Name: layout.Heading("context")}}}
	if h.entered != nil {
		g.Head[0].Cells = append(g.Head[0].Cells, stored.TypeEntries)
	}
	var used stacks.Flags
	for _, id := range hottest {
		self := h.tree.Node(id).Self
		row := layout.Row{Cells: []string{fmt.Sprintf("%.1f%%", h.share(self)), h.amount(self)}, Name: h.path(id)}
		if h.entered != nil {
			row.Cells = append(row.Cells, fmt.Sprint(h.entered[id]))
		}
		used |= h.flags[id] & stacks.Uncertain
		g.Rows = append(g.Rows, row)
	}
	fmt.Fprintf(h.out, "\nHottest contexts\n")
	g.Write(h.out, h.opts.Width)
	h.writeLegend(h.out, used, h.opts.Width)
}

// edges writes those that were entered most often.
func (h *hotContexts) edges() {
	var (
		edges []cct.NodeID
		total uint64
	)
	for id, entered := range h.entered {
		if entered > 0 {
			edges = append(edges, cct.NodeID(id))
			total += entered
		}
	}
	if len(edges) == 0 {
		return
	}
	slices.SortStableFunc(edges, func(a, b cct.NodeID) int { return cmp.Compare(h.entered[b], h.entered[a]) })
	edges, _ = layout.First(h.opts.N, edges)
	g := layout.Grid{Head: []layout.Row{{Cells: []string{"share", stored.TypeEntries, h.unit},
		Name: layout.Heading("context that was entered")}}}
	for _, id := range edges {
		g.Rows = append(g.Rows, layout.Row{Cells: []string{
			stored.Percent(float64(h.entered[id]), float64(total)), fmt.Sprint(h.entered[id]),
			h.amount(h.tree.Node(id).Self),
		}, Name: h.path(id)})
	}
	fmt.Fprintf(h.out, "\nHottest edges: number of samples that found a context newly entered\n")
	g.Write(h.out, h.opts.Width)
}

// path names a context, behind the marks that doubt it.
func (h *hotContexts) path(id cct.NodeID) func(width int) string {
	return func(width int) string {
		marks := (h.flags[id] & stacks.Uncertain).String()
		if marks != "" {
			marks += " "
		}
		if width > 0 {
			width -= len(marks)
		}
		return marks + layout.Path(&h.tree, id, width, func(name string) string { return name })
	}
}
