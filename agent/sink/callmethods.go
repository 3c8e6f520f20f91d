package sink

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
)

// writeCallMethods writes the hot methods of a profile that has nothing but calls, a table for each engine: how often
// a method is called, and how many calls it makes itself.
func writeCallMethods(out *bufio.Writer, p *pprof.Profile, opts *ViewOptions) error {
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

// writeMethods writes the table of one engine, the most called first. The most calling method is often one that was
// called once, long ago, so callers are in it even if nobody was seen to call them.
func (e *engineCalls) writeMethods(out *bufio.Writer, opts *ViewOptions) {
	called, makes := e.graph.Callees(), e.graph.Callers()
	names := make([]string, 0, len(called))
	for name := range called {
		names = append(names, name)
	}
	for name := range makes {
		if _, known := called[name]; !known && name != nobody.Name {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(called[b], called[a]), cmp.Compare(makes[b], makes[a]), strings.Compare(a, b))
	})

	count := max(len(e.number(e.graph.Total())), len("calls")) // columns
	fmt.Fprintf(out, "%7s %*s %7s %*s  method\n", "called", count, "calls", "makes", count, "calls")
	shown, rest := first(opts.N, names)
	for _, name := range shown {
		line := fmt.Sprintf("%6.1f%% %*s %6.1f%% %*s  ", e.share(called[name]), count, e.number(called[name]), e.share(makes[name]), count, e.number(makes[name]))
		fmt.Fprint(out, line, shorten(name, room(opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sum float64
		for _, name := range rest {
			sum += called[name]
		}
		fmt.Fprintf(out, "%6.1f%% %*s %s  %s\n", e.share(sum), count, e.number(sum), strings.Repeat(" ", 8+count), plural(len(rest), "more method"))
	}
}
