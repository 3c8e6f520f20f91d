// Package compare compares stored profiles: by the shares that things have in two of them
// (Profiles), by what they cost per unit of work on two sides of one or more recordings (Audit),
// and each window of a recording with the next (Windows).
//
//	verdict, err := compare.Audit(os.Stdout, before, after, &compare.AuditOptions{Per: per})
package compare

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// By is what two profiles are compared by.
type By uint8

const (
	ByMethod  By = iota // innermost methods; of calls, the methods that are called
	ByEdge              // the two innermost methods and the site of the call
	ByContext           // whole stacks
	ByClass             // classes of objects; only for events
	ByTotal             // methods with what they call; not in comparisons of shares
	ByService           // whole services; not in comparisons of shares
)

var byNames = [...]string{"method", "edge", "context", "class", "total", "service"}

// ParseBy reads the name of a By.
func ParseBy(name string) (By, error) {
	for by, n := range byNames {
		if n == name {
			return By(by), nil
		}
	}
	return 0, fmt.Errorf("cannot compare by %q: choose method, edge, context or class, or total or service of two "+
		"sides", name)
}

// String is the name, for one thing that is compared.
func (b By) String() string { return byNames[b] }

// noun is what one thing is called that is compared.
func (b By) noun() string {
	if b == ByTotal {
		return "method"
	}
	return b.String()
}

// Options says how two profiles are compared. The zero value compares all methods, by what both
// profiles have.
type Options struct {
	By          By
	SampleType  string // "" for one that both profiles have: calls, if possible
	Engine      string // engine of calls: "" for the only one
	IgnoreSites bool   // two methods are one edge, wherever one calls the other
	N           int    // differences to show; 0 for all
	Width       int    // columns that lines should keep to; 0 to keep names whole
}

// Named is a stored profile with what people call it.
type Named struct {
	Name    string
	Profile *pprof.Profile
}

// Profiles writes how much two profiles have in common: their overlap, their correlation (see
// cct.Overlap and cct.Correlation), and what differs most. Nil options are the zero value. It fails
// if they do not count the same thing.
func Profiles(w io.Writer, a, b Named, opts *Options) error {
	if opts == nil {
		opts = new(Options)
	}
	sampleType, err := commonType(a, b, opts.SampleType)
	if err != nil {
		return err
	}
	c := &comparison{names: [2]string{stored.Printable(a.Name), stored.Printable(b.Name)}, opts: opts,
		out: bufio.NewWriter(w)}
	for i, side := range []Named{a, b} {
		if c.sides[i], err = c.side(side, sampleType); err != nil {
			return err
		}
	}
	switch opts.By {
	case ByEdge:
		c.byEdge()
	case ByContext:
		c.byContext()
	case ByClass:
		c.byClass()
	default:
		c.byMethod()
	}
	if c.waited {
		fmt.Fprintf(c.out, "omitted: waits for work\n")
	}
	if sameProfile(a.Profile, b.Profile) {
		layout.Fold(c.out, sameText, opts.Width)
	}
	return layout.Flush(c.out, "comparison")
}

type comparison struct {
	names  [2]string
	sides  [2]*stacks.Samples
	waited bool // there are waits for work, which are left out
	opts   *Options
	out    *bufio.Writer
}

// side reads the stacks of one profile to compare.
func (c *comparison) side(n Named, sampleType string) (*stacks.Samples, error) {
	s, err := stacks.NewSamples(n.Profile, sampleType)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", n.Name, err)
	}
	c.waited = s.LeaveWaits() > 0 || c.waited
	if s.OfCalls() {
		if c.opts.Engine != "" {
			s.Keep = func(sample *pprof.Sample) bool {
				return stacks.Label(sample, stored.LabelEngine) == c.opts.Engine
			}
		} else if err := oneEngine(n); err != nil {
			return nil, err
		}
	}
	empty, classes := true, false
	for sample := range s.All() {
		empty = false
		classes = classes || stacks.Label(sample, stored.LabelClass) != ""
		if c.opts.By == ByContext && s.OfCalls() && !stacks.HasContext(sample) {
			return nil, fmt.Errorf("%s has calls without their contexts: compare by edge, or record with --exact",
				n.Name)
		}
	}
	if empty {
		what := s.Unit()
		if c.opts.Engine != "" {
			what += " of engine " + stored.Printable(c.opts.Engine)
		}
		return nil, fmt.Errorf("%s has no %s: there is nothing to compare", n.Name, what)
	}
	if c.opts.By == ByClass && !classes {
		return nil, noClasses(n.Name, s)
	}
	return s, nil
}

// noClasses is the error for a comparison by class of something else than objects.
func noClasses(name string, s *stacks.Samples) error {
	return fmt.Errorf("%s has no events of objects, only values of type %s: --by=class needs allocations (record -e "+
		"alloc), locks (-e lock), page faults "+
		"(-e page-faults) or write barriers (-e write-barrier); compare these by method", name, s.Unit())
}

// byMethod compares the innermost methods. It gets them as edge does, so that by method and by edge
// agree on what is innermost.
func (c *comparison) byMethod() {
	p, methods := newPairing[stacks.Method](), stacks.NewMethodNames()
	for side, s := range c.sides {
		for sample, value := range s.All() {
			m := s.Edge(sample).Callee
			methods.Add(m)
			p.add(side, m, float64(value))
		}
	}
	show(c, p, "method", func(m stacks.Method, width int) string { return layout.Shorten(methods.Name(m), width) })
}

// byEdge compares the two innermost methods, with the call site as far as both profiles know it.
func (c *comparison) byEdge() {
	a, b := knownFields(c.sides[0]), knownFields(c.sides[1])
	fields, note := a.and(b), ""
	if c.opts.IgnoreSites {
		fields = siteFields{}
	} else {
		note = fields.note(a, b)
	}
	p, methods, sites := newPairing[stacks.CallEdge](), stacks.NewMethodNames(), stacks.NewSiteNames()
	for side, s := range c.sides {
		for sample, value := range s.All() {
			e := s.Edge(sample)
			e.Site = fields.mask(e.Site)
			methods.Add(e.Caller)
			methods.Add(e.Callee)
			sites.Add(e.Caller.Name, e.Site)
			p.add(side, e, float64(value))
		}
	}
	show(c, p, "caller:line -> callee", func(e stacks.CallEdge, width int) string {
		return layout.Arrowed(methods.Name(e.Caller)+sites.Suffix(e.Caller.Name, e.Site), methods.Name(e.Callee), width)
	})
	if note != "" {
		layout.Fold(c.out, note, c.opts.Width)
	}
}

// byClass compares the classes of the objects that events are about. Those that are not known are
// one class.
func (c *comparison) byClass() {
	p := newPairing[string]()
	for side, s := range c.sides {
		for sample, value := range s.All() {
			class := cmp.Or(stacks.Label(sample, stored.LabelClass), stored.Unnamed)
			p.add(side, class, float64(value))
		}
	}
	show(c, p, "class", layout.Shorten)
}

// byContext compares whole stacks. Both profiles go into one tree, in which a node stands for a
// stack: as text, a thousand deep stacks would take a thousand times the memory.
func (c *comparison) byContext() {
	p, methods := newPairing[cct.NodeID](), stacks.NewMethodNames()
	var (
		tree   cct.Tree[stacks.Method] // tree of both profiles
		frames []stacks.Frame
		stack  []stacks.Method
	)
	for side, s := range c.sides {
		for sample, value := range s.All() {
			frames, stack = s.AppendFrames(frames[:0], sample), stack[:0]
			for _, f := range frames {
				methods.Add(f.Method)
				stack = append(stack, f.Method)
			}
			// If the tree is full, this is the deepest caller that is in it, for both profiles
			// alike.
			p.add(side, tree.Add(stack, value), float64(value))
		}
	}
	show(c, p, "context", func(id cct.NodeID, width int) string { return layout.Path(&tree, id, width, methods.Name) })
	if n := tree.Overflow(); n > 0 {
		fmt.Fprintf(c.out, "too many contexts: %s %s count for a caller instead\n", c.sides[0].Amount(float64(n)),
			c.sides[0].Unit())
	}
}

// show writes the measures and the table of differences. The function name names a thing in at most
// width columns, 0 for any number.
func show[K comparable](c *comparison, p *pairing[K], column string, name func(key K, width int) string) {
	unit := c.sides[0].Unit()
	fmt.Fprintf(c.out, "Comparison of %s by %v\n", unit, c.opts.By)
	for side, letter := range []string{"A", "B"} {
		layout.Fold(c.out, fmt.Sprintf("%s: %s, %s %s, %s", letter, c.names[side], c.sides[side].Amount(p.totals[side]),
			layout.Word(unit),
			stored.Plural(len(p.weights[side]), c.opts.By.String())), c.opts.Width)
	}
	fmt.Fprintf(c.out, "overlap      %7.2f  of 100: the share of %s common to both\n", p.overlap(), unit)
	if r := p.correlation(); math.IsNaN(r) {
		fmt.Fprintf(c.out, "correlation        -  undefined, because all weights are equal\n")
	} else {
		fmt.Fprintf(c.out, "correlation  %7.4f  of 1: how well one predicts the other\n", r)
	}

	// The table is in percentage points: a thing that got ten times heavier matters if it is heavy
	// now.
	list := p.differences()
	shown, rest := layout.First(c.opts.N, list)
	if len(list) == 0 {
		fmt.Fprintf(c.out, "\nNo share differs\n")
		return
	}
	fmt.Fprintf(c.out, "\nLargest differences\n%8s %8s %8s  %s\n", "A", "B", "B - A", column)
	for _, d := range shown {
		line := fmt.Sprintf("%7.2f%% %7.2f%% %+7.2f%%  ", d.shares[0], d.shares[1], d.delta())
		fmt.Fprint(c.out, line, name(d.key, layout.Room(c.opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sums [2]float64
		for _, d := range rest {
			sums[0] += d.shares[0]
			sums[1] += d.shares[1]
		}
		fmt.Fprintf(c.out, "%7.2f%% %7.2f%% %8s  %s\n", sums[0], sums[1], "",
			stored.Plural(len(rest), "smaller difference"))
	}
}

// commonType chooses the sample type by which to compare: the wanted one, or else calls, samples,
// the default of A, or any other that both profiles have values of. It fails if there is none, if
// its unit differs, or if they are of different kinds of events.
func commonType(a, b Named, wanted string) (string, error) {
	kindA, ofEventsA := stacks.EventKindOf(a.Profile)
	// Both have events, but of different kinds.
	if kindB, ofEventsB := stacks.EventKindOf(b.Profile); ofEventsA && ofEventsB && kindA != kindB {
		return "", fmt.Errorf("%s has %s, %s has %s: compare files of one kind", a.Name,
			kindA.Describe().Events, b.Name, kindB.Describe().Events)
	}
	for _, side := range []Named{a, b} {
		if wanted != "" && stacks.TypeIndex(side.Profile, wanted) < 0 {
			return "", fmt.Errorf("%s has no values of type %s: choose %s", side.Name, stored.Printable(wanted),
				stacks.TypeList(side.Profile))
		}
	}
	candidates := []string{wanted}
	if wanted == "" {
		candidates = []string{stored.TypeCalls, stored.TypeSamples, a.Profile.DefaultSampleType}
		for _, t := range a.Profile.SampleType {
			candidates = append(candidates, t.Type)
		}
	}
	// A column of zeros is no reason to prefer a type: an agent that samples calls has it also
	// where nobody called.
	var empty string // a type that fits, of which one profile has no value
	var other error  // why a type does not fit
	for _, name := range candidates {
		i, j := stacks.TypeIndex(a.Profile, name), stacks.TypeIndex(b.Profile, name)
		if i < 0 || j < 0 {
			continue
		}
		if unitA, unitB := a.Profile.SampleType[i].Unit, b.Profile.SampleType[j].Unit; unitA != unitB {
			other = fmt.Errorf("%s is in %s in %s but in %s in %s: record both in the same way",
				stored.Printable(name), stored.Printable(unitA), a.Name, stored.Printable(unitB), b.Name)
			continue
		}
		if hasValues(a.Profile, i) && hasValues(b.Profile, j) {
			return name, nil
		}
		if empty == "" {
			empty = name
		}
	}
	switch {
	case empty != "":
		return empty, nil
	case other != nil:
		return "", other
	}
	return "", fmt.Errorf("%s has values of type %s, %s of type %s: record both in the same way",
		a.Name, stacks.TypeList(a.Profile), b.Name, stacks.TypeList(b.Profile))
}

func hasValues(p *pprof.Profile, index int) bool {
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 })
}

// oneEngine returns an error if the calls in a profile are of several engines, as these do not add
// up.
func oneEngine(n Named) error {
	var engines []string
	index := stacks.TypeIndex(n.Profile, stored.TypeCalls)
	for _, s := range n.Profile.Sample {
		if engine := stacks.Label(s, stored.LabelEngine); s.Value[index] > 0 && !slices.Contains(engines, engine) {
			if engines = append(engines, engine); len(engines) == stacks.MaxWays {
				break
			}
		}
	}
	if len(engines) <= 1 {
		return nil
	}
	slices.Sort(engines)
	return fmt.Errorf("%s has calls of the engines %s, whose weights do not add up: choose one by --engine",
		n.Name, strings.Join(engines, ", "))
}

// A pairing is two profiles side by side: the weight that each gives to every thing of either.
type pairing[K comparable] struct {
	order   []K // order of first appearance, so that nothing depends on the order of a map
	weights [2]cct.Weights[K]
	totals  [2]float64
}

func newPairing[K comparable]() *pairing[K] {
	return &pairing[K]{weights: [2]cct.Weights[K]{{}, {}}}
}

// add adds weight to a thing in the profile of that side, 0 or 1.
func (p *pairing[K]) add(side int, key K, weight float64) {
	_, here := p.weights[side][key]
	if _, there := p.weights[1-side][key]; !here && !there {
		p.order = append(p.order, key)
	}
	p.weights[side][key] += weight
	p.totals[side] += weight
}

func (p *pairing[K]) overlap() float64 { return cct.Overlap(p.weights[0], p.weights[1]) }

func (p *pairing[K]) correlation() float64 { return cct.Correlation(p.weights[0], p.weights[1]) }

// A difference is the share of one thing in two profiles, in percent.
type difference[K comparable] struct {
	key    K
	shares [2]float64
}

// delta returns how much larger the share in the second profile is, in percentage points.
func (d difference[K]) delta() float64 { return d.shares[1] - d.shares[0] }

// differences returns the things whose shares differ, the largest difference first, then the
// largest share.
func (p *pairing[K]) differences() []difference[K] {
	const rounding = 1e-9 // percent
	var list []difference[K]
	for _, key := range p.order {
		d := difference[K]{key: key}
		for side, total := range p.totals {
			if total > 0 {
				d.shares[side] = 100 * p.weights[side][key] / total
			}
		}
		if math.Abs(d.delta()) > rounding {
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b difference[K]) int {
		return cmp.Or(cmp.Compare(math.Abs(b.delta()), math.Abs(a.delta())), cmp.Compare(b.shares[0], a.shares[0]))
	})
	return list
}

// siteFields says which fields of its call sites a profile knows. Sites of two profiles are
// compared by the fields that both know: a profiler that has no offsets would otherwise not have an
// edge in common with one that does.
type siteFields struct{ line, offset bool }

// knownFields returns what the samples of a profile know.
func knownFields(s *stacks.Samples) (known siteFields) {
	for sample := range s.All() {
		site := s.Edge(sample).Site
		known.line = known.line || site.Line > 0
		known.offset = known.offset || site.Offset >= 0
	}
	return known
}

func (f siteFields) and(g siteFields) siteFields {
	return siteFields{f.line && g.line, f.offset && g.offset}
}

// mask returns a site with only these fields.
func (f siteFields) mask(s profile.Site) profile.Site {
	if !f.line {
		s.Line = stored.NoSite.Line
	}
	if !f.offset {
		s.Offset = stored.NoSite.Offset
	}
	return s
}

// note says that common is less than what one of two profiles knows; it is "" if it is not.
func (common siteFields) note(a, b siteFields) string {
	lacks := func(hasA bool) string {
		if hasA {
			return "B"
		}
		return "A"
	}
	switch { // the least that is common first
	case a == b:
		return ""
	case common == siteFields{}:
		return "call sites are ignored: the profiles have no common information on them"
	case !common.offset && a.offset != b.offset:
		return "call sites are distinguished by line only: " + lacks(a.offset) + " has no offsets"
	}
	return "call sites are distinguished by offset only: " + lacks(a.line) + " has no lines"
}
