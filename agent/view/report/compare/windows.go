package compare

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Windows writes how well each window of a recording predicts the next, for every pair of
// consecutive windows in a profile: Whaley's precision of a profiler (Java Grande 2000), which is
// the correlation of two profile data sets, here next to their overlap. The data sets are his
// hot-method counters; the edges by call site that Arnold and Grove (CGO 2005) compare; contexts;
// and, if the profile has entries, his partial calling context tree: the samples of nodes and the
// entries of edges as one set. As in his paper, nodes and edges are the same if the methods from
// there to the root are. The last row has the geometric mean of each column.
//
// Options.By is not read. Nil options are the zero value. It fails if there are not two windows.
func Windows(w io.Writer, n Named, opts *Options) error {
	if opts == nil {
		opts = new(Options)
	}
	windows, err := stacks.ByWindow(n.Profile)
	if err != nil {
		return fmt.Errorf("read %s: %w", n.Name, err)
	}
	if len(windows) < 2 {
		return fmt.Errorf("%s cannot be compared with itself, because it has fewer than two windows: name two files, "+
			"or record "+
			"with --window=10s", n.Name)
	}
	sampleType, err := commonType(n, n, opts.SampleType)
	if err != nil {
		return err
	}
	side := comparison{opts: &Options{By: ByMethod, Engine: opts.Engine}}
	s, err := side.side(n, sampleType)
	if err != nil {
		return err
	}
	c, err := newWindowComparison(n, s, opts)
	if err != nil {
		return err
	}
	c.out = bufio.NewWriter(w)
	c.compare(windows)
	return layout.Flush(c.out, "comparison")
}

// A windowComparison compares each of several windows with the next. At any moment it holds the
// data sets of two.
type windowComparison struct {
	named    Named
	stacks   *stacks.Samples
	entries  *stacks.Samples // nil if there are none, or something else than samples is compared
	contexts bool            // the stacks are whole
	kinds    []string        // kinds of things: the columns of the table
	opts     *Options
	out      *bufio.Writer

	tree   cct.Tree[stacks.Method] // tree of all windows, so that a node stands for a context in each
	frames []stacks.Frame
	stack  []stacks.Method
}

func newWindowComparison(n Named, s *stacks.Samples, opts *Options) (*windowComparison, error) {
	n.Name = stored.Printable(n.Name)
	c := &windowComparison{named: n, stacks: s, opts: opts, contexts: true, kinds: []string{"methods", "edges"}}
	if s.OfCalls() {
		for sample := range s.All() {
			c.contexts = c.contexts && stacks.HasContext(sample)
		}
	}
	if c.contexts {
		c.kinds = append(c.kinds, "contexts")
	}
	if s.Unit() == stored.TypeSamples && stacks.HasEntries(n.Profile) {
		e, err := stacks.NewSamples(n.Profile, stored.TypeEntries)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", n.Name, err)
		}
		c.entries = e
		c.kinds = append(c.kinds, "PCCT")
	}
	return c, nil
}

// A dataSet is what one window says.
type dataSet struct {
	methods  cct.Weights[stacks.Method]
	edges    cct.Weights[stacks.CallEdge]
	contexts cct.Weights[treePart]
	pcct     cct.Weights[treePart]
	total    float64
}

// A treePart is a node of a tree, or the edge that leads to it.
type treePart struct {
	node cct.NodeID
	edge bool
}

func (c *windowComparison) read(samples []*pprof.Sample) *dataSet {
	d := &dataSet{cct.Weights[stacks.Method]{}, cct.Weights[stacks.CallEdge]{}, cct.Weights[treePart]{},
		cct.Weights[treePart]{}, 0}
	for _, sample := range samples {
		value := c.stacks.Value(sample)
		var entered uint64
		if c.entries != nil {
			entered = c.entries.Value(sample)
		}
		if value == 0 && entered == 0 {
			continue
		}
		var at treePart
		if c.contexts {
			at.node = c.place(sample)
		}
		if value > 0 {
			e := c.stacks.Edge(sample)
			if c.opts.IgnoreSites {
				e.Site = stored.NoSite
			}
			weight := float64(value)
			d.methods[e.Callee] += weight
			d.edges[e] += weight
			d.contexts[at] += weight
			d.pcct[at] += weight
			d.total += weight
		}
		if entered > 0 {
			at.edge = true
			d.pcct[at] += float64(entered)
		}
	}
	return d
}

// place returns the node of a sample's context. If the tree is full, it is the deepest caller that
// is in it, for all windows alike.
func (c *windowComparison) place(sample *pprof.Sample) cct.NodeID {
	c.frames, c.stack = c.stacks.AppendFrames(c.frames[:0], sample), c.stack[:0]
	for _, f := range c.frames {
		c.stack = append(c.stack, f.Method)
	}
	return c.tree.Add(c.stack, 0)
}

// A measured is how alike the data sets of two windows are, by kind of thing: correlations, which
// may be NaN, and overlaps from 0 to 1.
type measured struct {
	pair                 string
	correlation, overlap []float64
}

// measure compares the data sets of two windows, in the order of kinds.
func (c *windowComparison) measure(a, b *dataSet) (m measured) {
	measureKind(&m, a.methods, b.methods)
	measureKind(&m, a.edges, b.edges)
	if c.contexts {
		measureKind(&m, a.contexts, b.contexts)
	}
	if c.entries != nil {
		measureKind(&m, a.pcct, b.pcct)
	}
	return m
}

func measureKind[K comparable](m *measured, a, b cct.Weights[K]) {
	m.correlation = append(m.correlation, cct.Correlation(a, b))
	m.overlap = append(m.overlap, cct.Overlap(a, b)/100)
}

func (c *windowComparison) compare(windows map[int64][]*pprof.Sample) {
	numbers, short := c.longEnough(slices.Sorted(maps.Keys(windows)))
	var (
		rows        []measured
		before      *dataSet
		least, most = math.Inf(1), 0.0
		total       float64
	)
	for i, n := range numbers {
		d := c.read(windows[n])
		least, most, total = min(least, d.total), max(most, d.total), total+d.total
		if i > 0 {
			m := c.measure(before, d)
			m.pair = fmt.Sprintf("%d, %d", numbers[i-1], n)
			rows = append(rows, m)
		}
		before = d
	}
	unit, amount := c.stacks.Unit(), c.stacks.Amount
	fmt.Fprintf(c.out, "Precision by %s: how well each of %d windows predicts the next\n", unit, len(numbers))
	layout.Fold(c.out, fmt.Sprintf("%s, %s %s, %s to %s in a window", c.named.Name, amount(total), layout.Word(unit),
		amount(least), amount(most)), c.opts.Width)
	c.out.WriteByte('\n')
	c.table(rows)
	c.explain()
	if short != "" {
		layout.Fold(c.out, short, c.opts.Width)
	}
	if n := c.tree.Len(); n >= cct.DefaultLimit {
		fmt.Fprintf(c.out, "too many contexts: those beyond %d count for a caller instead\n", n)
	}
}

// longEnough leaves out the last window if it is shorter than half the one before, as the rest of a
// recording mostly is: its length alone would make it differ. The note says so.
func (c *windowComparison) longEnough(numbers []int64) (rest []int64, note string) {
	n := len(numbers) - 1
	lines := stacks.Windows(c.named.Profile)
	before, known := lines[numbers[n-1]]
	last, alsoKnown := lines[numbers[n]]
	if n < 2 || !known || !alsoKnown || last.Duration >= before.Duration/2 {
		return numbers, ""
	}
	return numbers[:n], fmt.Sprintf("window %d is omitted: it took %v, the previous one %v", last.Number,
		last.Duration.Round(time.Millisecond), before.Duration.Round(time.Millisecond))
}

// table writes a row for each pair of windows, and the means of all.
func (c *windowComparison) table(rows []measured) {
	head := []layout.Row{{Cells: []string{""}}, {Cells: []string{"windows"}}}
	mean := measured{pair: "mean"}
	undefined, negative := 0, false // correlations that have no part in a mean, or do not allow one
	for i, kind := range c.kinds {
		head[0].Cells = append(head[0].Cells, "", kind)
		head[1].Cells = append(head[1].Cells, "corr.", "overlap")
		var correlations, overlaps []float64
		for _, m := range rows {
			correlations = append(correlations, m.correlation[i])
			overlaps = append(overlaps, m.overlap[i])
		}
		r, without := geometricMean(correlations)
		undefined += without
		negative = negative || math.IsNaN(r) && without < len(rows)
		o, _ := geometricMean(overlaps) // Overlaps always have a value.
		mean.correlation, mean.overlap = append(mean.correlation, r), append(mean.overlap, o)
	}
	shown, rest := layout.First(c.opts.N, rows)
	g := layout.Grid{Head: head}
	for _, m := range append(slices.Clone(shown), mean) {
		cells := []string{m.pair}
		for i := range c.kinds {
			cells = append(cells, decimals(m.correlation[i], 4), decimals(100*m.overlap[i], 2))
		}
		g.Rows = append(g.Rows, layout.Row{Cells: cells})
	}
	g.Write(c.out, c.opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(c.out, "%s, included in the means\n", stored.Plural(len(rest), "more pair"))
	}
	if undefined > 0 {
		layout.Fold(c.out, "-: undefined, because all weights of a window are equal; the means omit it", c.opts.Width)
	}
	if negative {
		layout.Fold(c.out, "-: there is no geometric mean if a correlation is negative", c.opts.Width)
	}
}

// explain says what the columns are.
func (c *windowComparison) explain() {
	text := "corr.: correlation, of 1; overlap: of 100; mean: geometric; methods: the innermost ones; edges: the " +
		"innermost calls"
	if !c.opts.IgnoreSites {
		text += " by site"
	}
	if c.contexts {
		text += "; contexts: whole stacks"
	}
	if c.entries != nil {
		text += "; PCCT: samples and entries of contexts, as one set"
	}
	layout.Fold(c.out, text, c.opts.Width)
}

// geometricMean is that of the values that are not NaN, and how many are. It is NaN without any, or
// if one is negative.
func geometricMean(values []float64) (mean float64, undefined int) {
	defined := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	return cct.GeometricMean(defined...), len(values) - len(defined)
}

// decimals writes a value, or - for NaN.
func decimals(value float64, places int) string {
	if math.IsNaN(value) {
		return "-"
	}
	text := strconv.FormatFloat(value, 'f', places, 64)
	if unsigned := strings.TrimPrefix(text, "-"); strings.Trim(unsigned, "0.") == "" {
		return unsigned // a zero that was rounded
	}
	return text
}
