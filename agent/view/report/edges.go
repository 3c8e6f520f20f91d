package report

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// maxTargets bounds the targets of a call site that are shown.
const maxTargets = 8

// Edges writes the hot edges of the call graphs in a profile, a table for each engine: caller, line
// of the call, callee, and the basis of the number of calls, the largest number first. Estimated
// numbers have three digits and a 95 % interval. Above them is how much of the sampled callees'
// time has no number. Below them are the virtual call sites with the distribution over their
// targets; targets that pass cct.GuardedShare are marked. Where only the line of a call is known,
// lines that call several methods have such a table, too. Nil options are layout.DefaultOptions. It
// fails if calls were not recorded.
func Edges(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	engines, err := callsByEngine(p)
	if err != nil {
		return noCalls(w, p, err)
	}
	without := uncounted(p)
	out := bufio.NewWriter(w)
	for i, e := range engines {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(out, "Hot edges%s\n", e.title(p))
		if e.estimated {
			out.WriteString(without)
		}
		writer := edgeWriter{engineCalls: e, opts: opts, sites: stacks.NewSiteNames(), out: out}
		for edge := range e.graph.Edges() {
			writer.sites.Add(edge.Caller, edge.Site)
		}
		for edge := range e.unmeasured {
			writer.sites.Add(edge.Caller, edge.Site)
		}
		writer.edges()
		writer.callSites()
	}
	return layout.Flush(out, "edges")
}

type edgeWriter struct {
	*engineCalls
	opts  *layout.Options
	sites stacks.SiteNames
	out   *bufio.Writer
}

// edges writes the table of edges.
func (w *edgeWriter) edges() {
	shown, rest := layout.First(w.opts.N, w.hottest())
	var used bases
	mark := 0 // columns
	for _, e := range shown {
		used |= w.bases[e.Edge]
		mark = max(mark, len(w.bases[e.Edge].String()))
	}
	count := max(len(w.number(w.graph.Total())), len("calls")) // columns
	const between = len("1.23M-4.56M")
	fmt.Fprintf(w.out, "%7s %*s", "share", count, "calls")
	if w.estimated {
		fmt.Fprintf(w.out, " %*s", between, "95%")
	}
	fmt.Fprint(w.out, "  caller:line -> callee\n")
	for _, e := range shown {
		line := fmt.Sprintf("%6.1f%% %*s", w.share(e.Weight), count, w.number(e.Weight))
		switch within := w.within[e.Edge]; {
		case within.High > within.Low:
			line += fmt.Sprintf(" %*s", between, stored.ThreeDigits(within.Low)+"-"+stored.ThreeDigits(within.High))
		case w.estimated:
			line += fmt.Sprintf(" %*s", between, "")
		}
		line += "  "
		if mark > 0 {
			line += fmt.Sprintf("%-*s ", mark, w.bases[e.Edge])
		}
		caller := e.Caller + w.sites.Suffix(e.Caller, e.Site)
		fmt.Fprint(w.out, line, layout.Arrowed(caller, e.Callee, layout.Room(w.opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sum float64
		for _, e := range rest {
			sum += e.Weight
		}
		fmt.Fprintf(w.out, "%6.1f%% %*s  %s\n", w.share(sum), count, w.number(sum),
			stored.Plural(len(rest), "more edge"))
	}
	w.onlySeenEdges(w.opts.N - len(shown))
	if used != 0 {
		layout.Fold(w.out, "marks: "+used.legend(w.engine), w.opts.Width)
	}
	if w.onlyMade() {
		layout.Fold(w.out, "calls of methods that were compiled into their callers are not in the list: record "+
			"--logical estimates them", w.opts.Width)
	}
	if n := w.graph.Overflow(); n > 0 {
		fmt.Fprintf(w.out, "too many edges: %.0f calls are omitted\n", n)
	}
}

// onlyMade reports whether calls were estimated without those that were inlined.
func (w *edgeWriter) onlyMade() bool {
	var all bases
	for _, b := range w.bases {
		all |= b
	}
	return w.engine != stored.EngineCount && all&basisOf(profile.Estimated.String()) != 0 &&
		all&basisOf(profile.Inferred.String()) == 0
}

// onlySeenEdges lists edges that stacks or code have, and of which nothing says how often they are
// called: n at most, 0 or less for their number alone, unless all are asked for.
func (w *edgeWriter) onlySeenEdges(n int) {
	list := w.onlySeen()
	if len(list) == 0 {
		return
	}
	if w.opts.N == 0 {
		n = len(list)
	}
	n = min(max(n, 0), len(list))
	fmt.Fprintf(w.out, "number of calls unknown (seen in stacks or code only): %s\n", stored.Plural(len(list), "edge"))
	for _, e := range list[:n] {
		const indent = "  "
		fmt.Fprint(w.out, indent, layout.Arrowed(e.Caller+w.sites.Suffix(e.Caller, e.Site), e.Callee,
			layout.Room(w.opts.Width, len(indent))), "\n")
	}
}

// A callSite is a place in a caller, as views name it.
type callSite = cct.CallSite[string, profile.Site]

// callSites writes the places that call several methods. A place with an offset is one call, a
// virtual one. Of some languages (PHP) only the line of a call is known: such a place is all calls
// of a line, is distinguished by the heading and by its name, and has no mark, as several calls
// that are not virtual look the same.
func (w *edgeWriter) callSites() {
	var (
		virtual, lines []callSite
		unknown        float64 // calls of which not even the line is known
	)
	for _, s := range w.graph.CallSites(compareNameEdges) {
		switch {
		case s.Site.Offset < 0 && s.Site.Line <= 0:
			unknown += s.Weight
		case !s.Virtual():
		case s.Site.Offset < 0:
			lines = append(lines, s)
		default:
			virtual = append(virtual, s)
		}
	}
	w.virtualSites(virtual)
	w.lines(lines)
	if unknown > 0 {
		layout.Fold(w.out, fmt.Sprintf("unknown call site: %.1f%% of the calls, for which virtual calls are unknown",
			w.share(unknown)), w.opts.Width)
	}
}

// virtualSites writes calls that have several targets.
func (w *edgeWriter) virtualSites(sites []callSite) {
	if len(sites) == 0 {
		return
	}
	fmt.Fprintf(w.out, "\nVirtual call sites\n%7s  caller:line, then the share of each target\n", "share")
	shown, rest := layout.First(w.opts.N, sites)
	marked := false
	for i := range shown {
		guarded := len(shown[i].Guarded())
		marked = marked || guarded > 0
		w.targets(&shown[i], "", guarded)
	}
	if len(rest) > 0 {
		fmt.Fprintf(w.out, "%7s  %s\n", "", stored.Plural(len(rest), "more call site"))
	}
	if marked {
		layout.Fold(w.out, fmt.Sprintf("> has more than %.0f%% of the calls at its site: a candidate for guarded "+
			"inlining", 100*cct.GuardedShare), w.opts.Width)
	}
}

// lines writes lines whose calls have several targets.
func (w *edgeWriter) lines(lines []callSite) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w.out, "\nLines that call several methods\n%7s  caller:line, then the share of each target\n", "share")
	shown, rest := layout.First(w.opts.N, lines)
	for i := range shown {
		w.targets(&shown[i], ", all calls of the line", 0)
	}
	if len(rest) > 0 {
		fmt.Fprintf(w.out, "%7s  %s\n", "", stored.Plural(len(rest), "more line"))
	}
	layout.Fold(w.out, "the column of a call is unknown: a line may contain one virtual call or several calls",
		w.opts.Width)
}

// targets writes a place, with what its name is followed by, and what is called there. The first
// targets are marked.
func (w *edgeWriter) targets(s *callSite, suffix string, marked int) {
	head := fmt.Sprintf("%6.1f%%  ", w.share(s.Weight))
	fmt.Fprint(w.out, head, layout.Shorten(s.Caller+w.sites.Suffix(s.Caller, s.Site)+suffix,
		layout.Room(w.opts.Width, len(head))), "\n")
	shown, rest := layout.First(maxTargets, s.Targets)
	if w.opts.N == 0 {
		shown, rest = s.Targets, nil
	}
	for i, t := range shown {
		mark := ' '
		if i < marked {
			mark = '>'
		}
		line := fmt.Sprintf("%9c %5.1f%%  ", mark, 100*s.Share(t))
		fmt.Fprint(w.out, line, layout.Shorten(t.Callee, layout.Room(w.opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sum float64
		for _, t := range rest {
			sum += t.Weight
		}
		fmt.Fprintf(w.out, "%9c %5.1f%%  %s\n", ' ', 100*sum/s.Weight, stored.Plural(len(rest), "more target"))
	}
}

// A layer is the part of a program that a method belongs to.
type layer uint8

const (
	appLayer layer = iota
	jdkLayer
	noLayer // code without a name, or not of the program
	layerCount
)

// layerOf returns the layer that m belongs to: the application if app matches its name; nil for
// whatever is not in the Java class library.
func layerOf(m stacks.Method, app *regexp.Regexp) layer {
	switch {
	case m.Native, strings.HasPrefix(m.Name, "["):
		return noLayer
	case app != nil && app.MatchString(m.Name):
		return appLayer
	case app != nil, profile.InLibrary(m.Name, ""):
		return jdkLayer
	}
	return appLayer
}

// describeLayers says what the columns of the matrix mean.
func describeLayers(app *regexp.Regexp) string {
	if app != nil {
		return "App: methods that match " + stored.Printable(app.String()) + "; JDK: all others"
	}
	return "App: everything but " + profile.ClassLibrary() + ", which are JDK"
}

// Layers writes how the calls in a profile cross between the application and the Java class
// library, a line for each process and engine, as Table 2 of Moret, Binder and Villazón (PEPM 2009)
// does. A sixth column holds the calls that are in none of the four: from or to code without a name
// or not of the program, and those that have no caller. Options.App says what the application is;
// nil options are layout.DefaultOptions. It fails if calls were not recorded.
func Layers(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	rows, err := newLayerRows(p, opts)
	if err != nil {
		return noCalls(w, p, err)
	}
	out := bufio.NewWriter(w)
	count := len("calls") // columns
	for _, r := range rows {
		count = max(count, len(fmt.Sprint(r.total)))
	}
	fmt.Fprintf(out, "Calls within and between application and JDK\n")
	fmt.Fprintf(out, "App->App JDK->App App->JDK JDK->JDK   others %*s  process\n", count, "calls")
	shown, rest := layout.First(opts.N, rows)
	for _, r := range shown {
		var line strings.Builder
		for _, calls := range []uint64{
			r.calls[appLayer][appLayer], r.calls[jdkLayer][appLayer],
			r.calls[appLayer][jdkLayer], r.calls[jdkLayer][jdkLayer], r.others(),
		} {
			fmt.Fprintf(&line, "%7.2f%% ", 100*float64(calls)/float64(r.total))
		}
		fmt.Fprintf(&line, "%*d  ", count, r.total)
		fmt.Fprint(out, line.String(), layout.Shorten(r.name(), layout.Room(opts.Width, line.Len())), "\n")
	}
	if len(rest) > 0 {
		fmt.Fprintf(out, "%s\n", stored.Plural(len(rest), "more line"))
	}
	layout.Fold(out, describeLayers(opts.App), opts.Width)
	return layout.Flush(out, "layers")
}

// noCalls says so if err is that there are no calls in a profile for which they were recorded, as
// of a program that hardly ran. It returns any other error.
func noCalls(w io.Writer, p *pprof.Profile, err error) error {
	if !errors.Is(err, stacks.ErrNoCalls) || !stacks.HasCalls(p) {
		return err
	}
	_, err = fmt.Fprintln(w, "No calls were observed. Without --view, report shows how much there was to observe.")
	return err
}

// A layerRow is the matrix of one process, as one engine saw it.
type layerRow struct {
	process, engine string
	calls           [layerCount][layerCount]uint64 // by layer of the caller and of the callee
	total           uint64                         // never 0
}

func newLayerRows(p *pprof.Profile, opts *layout.Options) ([]*layerRow, error) {
	if !stacks.HasCalls(p) {
		return nil, stacks.ErrNoCalls
	}
	s, err := stacks.NewSamples(p, stored.TypeCalls)
	if err != nil {
		return nil, err
	}
	// Engines have lines of their own, as their weights do not add up; see engineCalls.
	type key struct{ process, engine string }
	rows := make(map[key]*layerRow)
	layers := make(map[stacks.Method]layer) // known ones, as an expression takes longer than a look-up
	layerOf := func(m stacks.Method) layer {
		l, known := layers[m]
		if !known {
			l = layerOf(m, opts.App)
			layers[m] = l
		}
		return l
	}
	for sample, calls := range s.All() {
		at := key{stacks.ProcessName(sample), stacks.Label(sample, stored.LabelEngine)}
		r := rows[at]
		if r == nil {
			r = &layerRow{process: at.process, engine: at.engine}
			rows[at] = r
		}
		e := s.Edge(sample)
		r.calls[layerOf(e.Caller)][layerOf(e.Callee)] += calls
		r.total += calls
	}
	if len(rows) == 0 {
		return nil, stacks.ErrNoCalls
	}
	list := make([]*layerRow, 0, len(rows))
	for _, r := range rows {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *layerRow) int {
		return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.process, b.process),
			strings.Compare(a.engine, b.engine))
	})
	return list, nil
}

// others are the calls from or to something that is in neither layer.
func (r *layerRow) others() (calls uint64) {
	for l := range layerCount {
		calls += r.calls[noLayer][l]
		if l != noLayer {
			calls += r.calls[l][noLayer]
		}
	}
	return calls
}

func (r *layerRow) name() string {
	if r.engine == "" {
		return r.process
	}
	return r.process + ", " + r.engine
}
