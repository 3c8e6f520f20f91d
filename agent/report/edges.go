package report

import (
	"bufio"
	"fmt"
	"io"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// maxTargets bounds the targets of a call site that are shown.
const maxTargets = 8

// Edges writes the hot edges of the call graphs in a profile, a table for each engine: caller, line of the call, callee,
// and the basis of the number of calls. Estimated numbers have three digits and a 95 % interval, and those are first of
// which the lower end is highest. Below them are the virtual call sites with the distribution over their
// targets, of which those that pass cct.GuardedShare are marked, and likewise the lines that call several methods, where
// nothing but the line of a call is known. Nil options are DefaultViewOptions. It fails if the profile has no calls.
func Edges(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	engines, err := callsByEngine(p)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for i, e := range engines {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(out, "Hot edges%s\n", e.title(p))
		writer := edgeWriter{engineCalls: e, opts: opts, sites: newSiteNames(), out: out}
		for edge := range e.graph.Edges() {
			writer.sites.add(edge.Caller, edge.Site)
		}
		for edge := range e.unmeasured {
			writer.sites.add(edge.Caller, edge.Site)
		}
		writer.edges()
		writer.callSites()
	}
	return flush(out, "edges")
}

type edgeWriter struct {
	*engineCalls
	opts  *ViewOptions
	sites siteNames
	out   *bufio.Writer
}

// edges writes the table of edges.
func (w *edgeWriter) edges() {
	shown, rest := first(w.opts.N, w.hottest())
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
		caller := e.Caller + w.sites.suffix(e.Caller, e.Site)
		fmt.Fprint(w.out, line, arrowed(caller, e.Callee, room(w.opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sum float64
		for _, e := range rest {
			sum += e.Weight
		}
		fmt.Fprintf(w.out, "%6.1f%% %*s  %s\n", w.share(sum), count, w.number(sum), stored.Plural(len(rest), "more edge"))
	}
	w.onlySeenEdges(w.opts.N - len(shown))
	if used != 0 {
		writeFolded(w.out, "marks: "+used.legend(), w.opts.Width)
	}
	if n := w.graph.Overflow(); n > 0 {
		fmt.Fprintf(w.out, "too many edges: %.0f calls are omitted\n", n)
	}
}

// onlySeenEdges lists edges that stacks or code have, and of which nothing says how often they are called: n at most, 0 or less for
// their number alone, unless all are asked for.
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
		fmt.Fprint(w.out, indent, arrowed(e.Caller+w.sites.suffix(e.Caller, e.Site), e.Callee, room(w.opts.Width, len(indent))), "\n")
	}
}

// A callSite is a place in a caller, as views name it.
type callSite = cct.CallSite[string, profile.Site]

// callSites writes the places that call several methods. A place with an offset is one call, a virtual one. Of some
// languages (PHP) only the line of a call is known: such a place is all calls of a line, is distinguished by the heading
// and by its name, and has no mark, as several calls that are not virtual look the same.
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
		writeFolded(w.out, fmt.Sprintf("unknown call site: %.1f%% of the calls, for which virtual calls are unknown", w.share(unknown)), w.opts.Width)
	}
}

// virtualSites writes calls that have several targets.
func (w *edgeWriter) virtualSites(sites []callSite) {
	if len(sites) == 0 {
		return
	}
	fmt.Fprintf(w.out, "\nVirtual call sites\n%7s  caller:line, then the share of each target\n", "share")
	shown, rest := first(w.opts.N, sites)
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
		writeFolded(w.out, fmt.Sprintf("> has more than %.0f%% of the calls at its site: a candidate for guarded inlining", 100*cct.GuardedShare), w.opts.Width)
	}
}

// lines writes lines whose calls have several targets.
func (w *edgeWriter) lines(lines []callSite) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w.out, "\nLines that call several methods\n%7s  caller:line, then the share of each target\n", "share")
	shown, rest := first(w.opts.N, lines)
	for i := range shown {
		w.targets(&shown[i], ", all calls of the line", 0)
	}
	if len(rest) > 0 {
		fmt.Fprintf(w.out, "%7s  %s\n", "", stored.Plural(len(rest), "more line"))
	}
	writeFolded(w.out, "the column of a call is unknown: a line may contain one virtual call or several calls", w.opts.Width)
}

// targets writes a place, with what its name is followed by, and what is called there. The first targets are marked.
func (w *edgeWriter) targets(s *callSite, suffix string, marked int) {
	head := fmt.Sprintf("%6.1f%%  ", w.share(s.Weight))
	fmt.Fprint(w.out, head, shorten(s.Caller+w.sites.suffix(s.Caller, s.Site)+suffix, room(w.opts.Width, len(head))), "\n")
	shown, rest := first(maxTargets, s.Targets)
	if w.opts.N == 0 {
		shown, rest = s.Targets, nil
	}
	for i, t := range shown {
		mark := ' '
		if i < marked {
			mark = '>'
		}
		line := fmt.Sprintf("%9c %5.1f%%  ", mark, 100*s.Share(t))
		fmt.Fprint(w.out, line, shorten(t.Callee, room(w.opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sum float64
		for _, t := range rest {
			sum += t.Weight
		}
		fmt.Fprintf(w.out, "%9c %5.1f%%  %s\n", ' ', 100*sum/s.Weight, stored.Plural(len(rest), "more target"))
	}
}

// first returns the first n of list, 0 for all, and the rest.
func first[T any](n int, list []T) (shown, rest []T) {
	if n <= 0 || n >= len(list) {
		return list, nil
	}
	return list[:n], list[n:]
}

// siteNames distinguishes call sites of one method for people: by line, and by offset where a line has several. All
// sites are added before the first is named.
type siteNames struct {
	offsets map[lineOf]int32 // of the site on a line, or several
}

type lineOf struct {
	caller string
	line   int32
}

// several is no offset, and not that of an unknown one.
const several = -2

func newSiteNames() siteNames { return siteNames{make(map[lineOf]int32)} }

func (n siteNames) add(caller string, s profile.Site) {
	at := lineOf{caller, s.Line}
	offset, known := n.offsets[at]
	if !known {
		n.offsets[at] = s.Offset
	} else if offset != s.Offset {
		n.offsets[at] = several
	}
}

// suffix is what follows the name of the caller: ":12", or ":12@34".
func (n siteNames) suffix(caller string, s profile.Site) (suffix string) {
	if s.Line > 0 {
		suffix = fmt.Sprintf(":%d", s.Line)
	}
	if s.Offset >= 0 && (s.Line == 0 || n.offsets[lineOf{caller, s.Line}] == several) {
		suffix += fmt.Sprintf("@%d", s.Offset)
	}
	return suffix
}
