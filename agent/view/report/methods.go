package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// writeCallMethods writes the hot methods of a profile that has nothing but calls, a table for each
// engine: how often a method is called, and how many calls it makes itself.
func writeCallMethods(out *bufio.Writer, p *pprof.Profile, opts *layout.Options) error {
	engines, err := callsByEngine(p)
	if err != nil {
		return err
	}
	for i, e := range engines {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(out, "Hot methods%s\n", e.title(p))
		e.writeMethods(out, opts)
	}
	return nil
}

// writeMethods writes the table of one engine, the most called first. The most calling method is
// often one that was called once, long ago, so callers are in it even if nobody was seen to call
// them.
func (e *engineCalls) writeMethods(out *bufio.Writer, opts *layout.Options) {
	called, makes := e.graph.Callees(), e.graph.Callers()
	names := make([]string, 0, len(called))
	for name := range called {
		names = append(names, name)
	}
	for name := range makes {
		if _, known := called[name]; !known && name != stacks.Nobody.Name {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(called[b], called[a]), cmp.Compare(makes[b], makes[a]), strings.Compare(a, b))
	})

	count := max(len(e.number(e.graph.Total())), len("calls")) // columns
	fmt.Fprintf(out, "%7s %*s %7s %*s  method\n", "called", count, "calls", "makes", count, "calls")
	shown, rest := layout.First(opts.N, names)
	for _, name := range shown {
		line := fmt.Sprintf("%6.1f%% %*s %6.1f%% %*s  ", e.share(called[name]), count, e.number(called[name]),
			e.share(makes[name]), count, e.number(makes[name]))
		fmt.Fprint(out, line, layout.Shorten(name, layout.Room(opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sum float64
		for _, name := range rest {
			sum += called[name]
		}
		fmt.Fprintf(out, "%6.1f%% %*s %s  %s\n", e.share(sum), count, e.number(sum), strings.Repeat(" ", 8+count),
			stored.Plural(len(rest), "more method"))
	}
}

// Methods writes the hot methods of a profile as a table, the most self time first: that in which a
// method was innermost, and that in which it was anywhere on the stack, recursion counted once;
// with the numbers of samples. If the profile has nothing but calls, these are the calls of the
// method and the calls that it makes. Nil options are layout.DefaultOptions.
func Methods(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	out := bufio.NewWriter(w)
	if stacks.HoldsCalls(p) && !stacks.HasTime(p) {
		if err := writeCallMethods(out, p, opts); err != nil {
			return err
		}
		return layout.Flush(out, "methods")
	}
	v, err := newView(p, formOf(opts)|byTime)
	if err != nil {
		return err
	}
	n, err := newView(p, formOf(opts)) // the numbers of samples
	if err != nil {
		return err
	}
	own := func(name string) string { return name }
	entries := cct.Hot(&v.tree, own)
	cct.SortEntries(entries, strings.Compare)
	entries, rest := layout.First(opts.N, entries)
	numbers := make(map[string]cct.Entry[string])
	for _, e := range cct.Hot(&n.tree, own) {
		numbers[e.Key] = e
	}

	hows := make(map[string]stacks.Flags)
	for id, n := range v.tree.Nodes() {
		hows[n.Key] |= v.flags[id] &^ stacks.Uncertain // without doubts about its context
	}
	var used stacks.Flags
	mark := 0 // columns
	for _, e := range entries {
		used |= hows[e.Key]
		mark = max(mark, len(hows[e.Key].String()))
	}
	count := max(len(n.amount(n.tree.Total())), len(n.unit)) // columns
	for _, e := range entries {
		of := numbers[e.Key]
		count = max(count, len(n.amount(of.Self)), len(n.amount(of.Total))) // 1000KB is longer than 1MB
	}

	fmt.Fprintf(out, "Hot methods%s\n", stacks.Elapsed(p))
	fmt.Fprintf(out, "%7s %*s %7s %*s  method\n", "self", count, n.unit, "total", count, n.unit)
	for _, e := range entries {
		of := numbers[e.Key]
		line := fmt.Sprintf("%6.1f%% %*s %6.1f%% %*s  ", v.share(e.Self), count, n.amount(of.Self), v.share(e.Total),
			count, n.amount(of.Total))
		if mark > 0 {
			line += fmt.Sprintf("%-*s ", mark, hows[e.Key])
		}
		fmt.Fprintf(out, "%s%s\n", line, layout.Shorten(e.Key, layout.Room(opts.Width, len(line))))
	}
	if len(rest) > 0 {
		var self, number uint64
		for _, e := range rest {
			self += e.Self
			number += numbers[e.Key].Self
		}
		fmt.Fprintf(out, "%6.1f%% %*s %s  %s\n", v.share(self), count, n.amount(number), strings.Repeat(" ", 8+count),
			stored.Plural(len(rest), "more method"))
	}
	if v.tree.Total() == 0 && stacks.HasTime(p) {
		why := "the processes used no CPU time, or less than one sample period"
		if slices.ContainsFunc(p.Comments, func(c string) bool { return strings.HasPrefix(c, stacks.SamplesWhere) }) {
			why = "no sample meets the condition, or none was recorded"
		}
		layout.Fold(out, "No samples: "+why, opts.Width)
	}
	v.writeLegend(out, used, opts.Width)
	return layout.Flush(out, "methods")
}

// maxIndent bounds how far a line of the tree is indented, in columns, one a level. Deeper lines
// say their level.
const maxIndent = 32

// Tree writes the calling context tree of a profile as Figure 12 of Inoue and Nakatani
// (OOPSLA 2009) does: a line for each context with at least MinShare of all samples, below
// its caller, the heaviest first; s: counts the samples of that context itself and d: those
// with all its descendants. Methods that are always inlined there are marked, where the paper
// leaves them out, and direct recursion that nothing branches off from is one line. If the
// profile is of several processes, they are the outermost lines. Nil options are
// layout.DefaultOptions.
//
// Contexts are also marked if some of their samples may belong elsewhere: those of the context
// itself, or of contexts below that are too light to be shown. If the profile has entries, e:
// counts how often samples found the context newly entered: of two with the same s:, the one with
// more is called often, and the other runs long (Whaley, Java Grande 2000).
func Tree(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	v, err := newView(p, byProcess|withWakers|formOf(opts)&withIdle)
	if err != nil {
		return err
	}
	t := treeWriter{view: v, opts: opts, totals: v.tree.Totals(), out: bufio.NewWriter(w)}
	t.liftMarks()
	fmt.Fprintf(t.out, "Calling contexts with %g%% or more of %s\n", opts.MinShare,
		layout.ManyOf(v.amount(v.tree.Total()), layout.Word(v.unit)))
	v.tree.Walk(v.tree.Heaviest(t.totals, strings.Compare), t.visit)
	v.writeLegend(t.out, t.used, opts.Width)
	if v.entered != nil {
		layout.Fold(t.out, "e: number of samples that found the context newly entered", opts.Width)
	}
	return layout.Flush(t.out, "tree")
}

// liftMarks gives the marks that doubt contexts which are not shown to the callers that are.
func (t *treeWriter) liftMarks() {
	for id := cct.NodeID(t.tree.Len()); id != cct.Root; id-- { // children before parents
		if !t.visible(id) {
			t.flags[t.tree.Node(id).Parent] |= t.flags[id] & stacks.Uncertain
		}
	}
}

type treeWriter struct {
	*view
	opts   *layout.Options
	totals []uint64 // by NodeID
	out    *bufio.Writer
	used   stacks.Flags

	folded []int      // by depth, on the path to the node visited: levels above that share a line with another
	inRun  cct.NodeID // the last node of the run that was written and is being passed; Root for none
}

// visible says that a context is heavy enough to be shown.
func (t *treeWriter) visible(id cct.NodeID) bool {
	return t.totals[id] > 0 && t.share(t.totals[id]) >= t.opts.MinShare
}

func (t *treeWriter) visit(id cct.NodeID, n cct.Node[string]) bool {
	if !t.visible(id) {
		return false
	}
	if t.inRun != cct.Root {
		// The rest of a run is passed at once: it has no other visible nodes, and the walk is
		// heaviest first.
		if id == t.inRun {
			t.inRun = cct.Root
		}
		return true
	}
	run := t.run(id, n)
	if run.last != id {
		t.inRun = run.last
	}
	last := n.Depth + run.length - 1
	for len(t.folded) <= last+1 {
		t.folded = append(t.folded, 0)
	}
	t.folded[last+1] = t.folded[n.Depth] + run.length - 1
	t.line(n.Depth-1-t.folded[n.Depth], n.Key, run, t.totals[id])
	return true
}

// A run is a method calling itself and nothing else that is visible: one line.
type run struct {
	last    cct.NodeID
	length  int
	self    uint64
	entered uint64
	flags   stacks.Flags
}

func (t *treeWriter) run(id cct.NodeID, n cct.Node[string]) run {
	r := run{last: id, length: 1, self: n.Self, entered: t.entries(id), flags: t.flags[id]}
	for {
		var only cct.NodeID
		children := 0
		for child := range t.tree.Children(r.last) {
			if t.visible(child) {
				children++
				only = child
			}
		}
		if children != 1 || t.tree.Node(only).Key != n.Key {
			return r
		}
		r.last = only
		r.length++
		r.self += t.tree.Node(only).Self
		r.entered += t.entries(only)
		r.flags |= t.flags[only]
	}
}

func (t *treeWriter) line(level int, name string, r run, total uint64) {
	t.used |= r.flags
	head := strings.Repeat(" ", min(level, maxIndent)) + "+-"
	if level > maxIndent {
		head += fmt.Sprintf("{%d} ", level)
	}
	var tail strings.Builder
	if marks := r.flags.String(); marks != "" {
		tail.WriteString(" " + marks)
	}
	switch r.flags & (stacks.Inlined | stacks.Called) {
	case stacks.Inlined:
		tail.WriteString(" (inline)")
	case stacks.Inlined | stacks.Called:
		tail.WriteString(" (partly inline)")
	}
	if r.length > 1 {
		fmt.Fprintf(&tail, " (recursive, %d levels)", r.length)
	}
	fmt.Fprintf(&tail, " s:%s(%.1f%%) d:%s(%.1f%%)", t.amount(r.self), t.share(r.self), t.amount(total), t.share(total))
	if t.entered != nil {
		fmt.Fprintf(&tail, " e:%d", r.entered)
	}
	tail.WriteByte('\n')
	left := layout.Room(t.opts.Width, len(head)+utf8.RuneCountInString(tail.String())-1)
	fmt.Fprint(t.out, head, layout.Shorten(name, left), tail.String())
}
