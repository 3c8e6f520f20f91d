package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// bases is a set of ways to learn how often a call is made.
type bases uint8

// basisMarks are the letters that bases are shown as.
var basisMarks = [...]struct {
	basis profile.Basis
	means string
}{
	{profile.Sampled, "from observed calls"},
	{profile.Counted, "every call"},
	{profile.Estimated, "from CPU time in callees and the VM's own counters"},
	{profile.Inferred, "inlined, derived from the compiled code"},
}

// basisOf reads a label; it is empty for one that is not known.
func basisOf(label string) bases {
	for i, m := range basisMarks {
		if m.basis.String() == label {
			return 1 << i
		}
	}
	return 0
}

// String returns the marks in brackets, or nothing.
func (b bases) String() string {
	var letters string
	for i, m := range basisMarks {
		if b&(1<<i) != 0 {
			letters += m.basis.String()[:1]
		}
	}
	if letters == "" {
		return ""
	}
	return "[" + letters + "]"
}

// legend explains the marks that an engine's calls have, in their order.
func (b bases) legend(engine string) string {
	var list []string
	for i, m := range basisMarks {
		if b&(1<<i) == 0 {
			continue
		}
		means := m.means
		if engine == stored.EngineCount {
			means = countedMeans[m.basis]
		}
		name := m.basis.String()
		list = append(list, name[:1]+" "+name+": "+means)
	}
	return strings.Join(list, "; ")
}

// countedMeans are the bases of the calls of record --count, whose breakpoints may stand only some
// of the time, or in some threads.
var countedMeans = map[profile.Basis]string{
	profile.Counted: "every call that entered the method's code, by a breakpoint there",
	profile.Estimated: "calls that entered the method's code, counted in a part of the time or of the threads and " +
		"scaled to all",
}

type (
	// A nameGraph is a call graph as views show it: overloaded methods are one.
	nameGraph = cct.Graph[string, profile.Site]
	nameEdge  = cct.Edge[string, profile.Site]
)

// engineCalls are the calls that one engine recorded. Views keep engines apart, as a sampled call
// of one does not weigh what an estimated one of another does.
type engineCalls struct {
	engine    string
	graph     *nameGraph
	bases     map[nameEdge]bases
	within    map[nameEdge]profile.Interval
	estimated bool // some of the numbers are
	// unmeasured are edges of which some calls, or all, are in no number.
	unmeasured map[nameEdge]bool
}

// callsByEngine returns the calls in a stored profile, by the name of the engine.
func callsByEngine(p *pprof.Profile) ([]*engineCalls, error) {
	stored, err := stacks.CallsOf(p)
	if err != nil {
		return nil, err
	}
	var all []*engineCalls
	for _, c := range stored {
		i, known := slices.BinarySearchFunc(all, c.Engine, func(e *engineCalls,
			name string) int {
			return strings.Compare(e.engine, name)
		})
		if !known {
			all = slices.Insert(all, i, &engineCalls{engine: c.Engine, graph: new(nameGraph),
				bases: make(map[nameEdge]bases), within: make(map[nameEdge]profile.Interval),
				unmeasured: make(map[nameEdge]bool)})
		}
		all[i].add(c)
	}
	return all, nil
}

func (e *engineCalls) add(c *stacks.Calls) {
	basis := basisOf(c.Basis)
	named := func(edge stacks.CallEdge) nameEdge {
		return nameEdge{Caller: edge.Caller.Name, Site: edge.Site, Callee: edge.Callee.Name}
	}
	if c.Basis == profile.Unmeasured.String() {
		for edge := range c.Graph.Edges() {
			e.unmeasured[named(edge)] = true
		}
		return
	}
	e.graph.Merge(cct.MapGraph(c.Graph, func(edge stacks.CallEdge) nameEdge {
		e.bases[named(edge)] |= basis
		return named(edge)
	}))
	for edge, weight := range c.Graph.Edges() {
		within, ok := c.Intervals[edge]
		if !ok {
			within = profile.Interval{Low: weight, High: weight}
		}
		e.within[named(edge)] = e.within[named(edge)].Add(within)
		e.estimated = e.estimated || ok
	}
}

// number writes a number of calls: with three digits if it is estimated.
func (e *engineCalls) number(calls float64) string {
	if !e.estimated {
		return strconv.FormatFloat(calls, 'f', 0, 64)
	}
	return stored.ThreeDigits(calls)
}

// hottest are the edges, those first that are called most often by the best estimate.
func (e *engineCalls) hottest() []cct.WeightedEdge[string, profile.Site] {
	return e.graph.Hottest(compareNameEdges)
}

// mostCalls is the share of the calls whose edges say how far off the sum may be.
const mostCalls = 0.95

// totalWithin is the interval of the sum of all calls. Errors of estimates are mostly common to all
// edges, so the ends add up. Of rare edges often nothing but a high bound is known: those beyond
// mostCalls are as far off as the others at most.
func (e *engineCalls) totalWithin() (sum profile.Interval) {
	most, seen := 1., 0.
	for _, edge := range e.hottest() {
		factor := e.within[edge.Edge].FactorOf(edge.Weight)
		if seen < mostCalls*e.graph.Total() {
			most = max(most, factor)
		}
		seen += edge.Weight
		factor = min(factor, most)
		sum = sum.Add(profile.Interval{Low: edge.Weight / factor, High: edge.Weight * factor})
	}
	return sum
}

// onlySeen are the edges of which no call was measured, in their order.
func (e *engineCalls) onlySeen() (list []nameEdge) {
	for edge := range e.unmeasured {
		if e.graph.Weight(edge) == 0 {
			list = append(list, edge)
		}
	}
	slices.SortFunc(list, compareNameEdges)
	return list
}

// title begins the views of e: " of engine hotspot: 1.20M calls (95 %: 900k-1.60M) in 10.00 s".
func (e *engineCalls) title(p *pprof.Profile) string {
	var title string
	if e.engine != "" {
		title = " of engine " + e.engine
	}
	title += ": " + layout.ManyOf(e.number(e.graph.Total()), "calls")
	if e.estimated && e.graph.Total() > 0 {
		within := e.totalWithin()
		title += fmt.Sprintf(" (95 %%: %s-%s)", stored.ThreeDigits(within.Low), stored.ThreeDigits(within.High))
	}
	if p.DurationNanos > 0 {
		title += fmt.Sprintf(" in %.2f s", time.Duration(p.DurationNanos).Seconds())
	}
	return title
}

// uncounted is a line on the sampled callees whose calls have no number; "" if there are none, or
// the profile does not know.
func uncounted(p *pprof.Profile) string {
	m, err := stored.MetadataOf(p)
	if err != nil {
		return ""
	}
	for _, x := range m.ExtentsTogether() {
		if x.Subject == profile.SubjectCalls && x.There > 0 && x.Share() < 1 {
			return stored.SharePercent(1-x.Share()) + " of the sampled callees' time has no count\n"
		}
	}
	return ""
}

// share returns the part of the engine's calls that weight is, in percent.
func (e *engineCalls) share(weight float64) float64 {
	if e.graph.Total() == 0 {
		return 0
	}
	return 100 * weight / e.graph.Total()
}

func compareNameEdges(a, b nameEdge) int {
	return cmp.Or(
		strings.Compare(a.Caller, b.Caller),
		cmp.Compare(a.Site.Line, b.Site.Line), cmp.Compare(a.Site.Offset, b.Site.Offset),
		strings.Compare(a.Callee, b.Callee),
	)
}
