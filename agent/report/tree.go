package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// maxIndent bounds how far a line of the tree is indented, in columns, one a level. Deeper lines say their level.
const maxIndent = 32

// Tree writes the calling context tree of a profile as Figure 12 of Inoue and Nakatani (OOPSLA 2009) does: a line
// for each context with at least MinShare of all samples, below its caller, the heaviest first; s: counts the
// samples of that context itself and d: those with all its descendants. Methods that are always inlined there are
// marked, where the paper leaves them out, and direct recursion that nothing branches off from is one line. If the
// profile is of several processes, they are the outermost lines. Nil options are DefaultViewOptions.
//
// Contexts are also marked if some of their samples may belong elsewhere: those of the context itself, or of contexts
// below that are too light to be shown. If the profile has entries, e: counts how often samples found the context newly
// entered: of two with the same s:, the one with more is called often, and the other runs long (Whaley, Java Grande
// 2000).
func Tree(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	v, err := newView(p, true)
	if err != nil {
		return err
	}
	t := treeWriter{view: v, opts: opts, totals: v.tree.Totals(), out: bufio.NewWriter(w)}
	t.liftMarks()
	fmt.Fprintf(t.out, "Calling contexts with %g%% or more of %s %s\n", opts.MinShare, v.amount(v.tree.Total()), word(v.unit))
	v.tree.Walk(v.tree.Heaviest(t.totals, strings.Compare), t.visit)
	v.writeLegend(t.out, t.used, opts.Width)
	if v.entered != nil {
		writeFolded(t.out, "e: number of samples that found the context newly entered", opts.Width)
	}
	return flush(t.out, "tree")
}

// liftMarks gives the marks that doubt contexts which are not shown to the callers that are.
func (t *treeWriter) liftMarks() {
	for id := cct.NodeID(t.tree.Len()); id != cct.Root; id-- { // children before parents
		if !t.visible(id) {
			t.flags[t.tree.Node(id).Parent] |= t.flags[id] & uncertain
		}
	}
}

type treeWriter struct {
	*view
	opts   *ViewOptions
	totals []uint64 // by NodeID
	out    *bufio.Writer
	used   frameFlags

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
		// The rest of a run is passed at once: it has no other visible nodes, and the walk is heaviest first.
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
	flags   frameFlags
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
	switch r.flags & (inlined | called) {
	case inlined:
		tail.WriteString(" (inline)")
	case inlined | called:
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
	left := room(t.opts.Width, len(head)+utf8.RuneCountInString(tail.String())-1)
	fmt.Fprint(t.out, head, shorten(name, left), tail.String())
}
