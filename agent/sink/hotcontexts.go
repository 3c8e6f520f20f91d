package sink

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// hotContexts writes the hottest nodes and edges of a calling context tree: Whaley's lists of the partial one (Java
// Grande 2000), of which a reader sees what takes time and what is called often.
type hotContexts struct {
	*view
	opts *ViewOptions
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
	g := grid{head: []gridRow{{cells: []string{"share", h.unit}, name: heading("context")}}}
	if h.entered != nil {
		g.head[0].cells = append(g.head[0].cells, typeEntries)
	}
	var used how
	for _, id := range hottest {
		self := h.tree.Node(id).Self
		row := gridRow{[]string{fmt.Sprintf("%.1f%%", h.share(self)), h.amount(self)}, h.path(id)}
		if h.entered != nil {
			row.cells = append(row.cells, fmt.Sprint(h.entered[id]))
		}
		used |= h.how[id] & uncertain
		g.rows = append(g.rows, row)
	}
	fmt.Fprintf(h.out, "\nHottest contexts\n")
	g.write(h.out, h.opts.Width)
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
	edges, _ = first(h.opts.N, edges)
	g := grid{head: []gridRow{{cells: []string{"share", typeEntries, h.unit}, name: heading("context that was entered")}}}
	for _, id := range edges {
		g.rows = append(g.rows, gridRow{[]string{
			percent(float64(h.entered[id]), float64(total)), fmt.Sprint(h.entered[id]), h.amount(h.tree.Node(id).Self),
		}, h.path(id)})
	}
	fmt.Fprintf(h.out, "\nHottest edges: how often samples found a context newly entered\n")
	g.write(h.out, h.opts.Width)
}

// path names a context, behind the marks that doubt it.
func (h *hotContexts) path(id cct.NodeID) func(width int) string {
	return func(width int) string {
		marks := (h.how[id] & uncertain).String()
		if marks != "" {
			marks += " "
		}
		if width > 0 {
			width -= len(marks)
		}
		return marks + contextPath(&h.tree, id, width, func(name string) string { return name })
	}
}
