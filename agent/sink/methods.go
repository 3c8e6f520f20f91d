package sink

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Methods writes the hot methods of a profile as a table, the most self time first: the samples in which a method
// was innermost, and those in which it was anywhere on the stack, recursion counted once. If the profile has nothing
// but calls, these are the calls of the method and the calls that it makes. Nil options are DefaultViewOptions.
func Methods(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	out := bufio.NewWriter(w)
	if holdsCalls(p) && !HasTime(p) {
		if err := writeCallMethods(out, p, opts); err != nil {
			return err
		}
		return flush(out, "methods")
	}
	v, err := newView(p, false)
	if err != nil {
		return err
	}
	entries := cct.Hot(&v.tree, func(name string) string { return name })
	cct.SortEntries(entries, strings.Compare)
	entries, rest := first(opts.N, entries)

	hows := make(map[string]how)
	for id, n := range v.tree.Nodes() {
		hows[n.Key] |= v.how[id] &^ uncertain // of its context
	}
	var used how
	mark := 0 // columns
	for _, e := range entries {
		used |= hows[e.Key]
		mark = max(mark, len(hows[e.Key].String()))
	}
	count := max(len(v.amount(v.tree.Total())), len(v.unit)) // columns
	for _, e := range entries {
		count = max(count, len(v.amount(e.Self)), len(v.amount(e.Total))) // 1000KB is longer than 1MB
	}

	fmt.Fprintf(out, "Hot methods%s\n", elapsed(p))
	fmt.Fprintf(out, "%7s %*s %7s %*s  method\n", "self", count, v.unit, "total", count, v.unit)
	for _, e := range entries {
		line := fmt.Sprintf("%6.1f%% %*s %6.1f%% %*s  ", v.share(e.Self), count, v.amount(e.Self), v.share(e.Total), count, v.amount(e.Total))
		if mark > 0 {
			line += fmt.Sprintf("%-*s ", mark, hows[e.Key])
		}
		fmt.Fprintf(out, "%s%s\n", line, shorten(e.Key, room(opts.Width, len(line))))
	}
	if len(rest) > 0 {
		var self uint64
		for _, e := range rest {
			self += e.Self
		}
		fmt.Fprintf(out, "%6.1f%% %*s %s  %d more methods\n", v.share(self), count, v.amount(self), strings.Repeat(" ", 8+count), len(rest))
	}
	v.writeLegend(out, used, opts.Width)
	return flush(out, "methods")
}

// elapsed says how much CPU time a profile holds and how long it took, if it does say.
func elapsed(p *pprof.Profile) string {
	var parts []string
	if cpu := sum(p, "cpu", nil); cpu > 0 {
		parts = append(parts, fmt.Sprintf("%.2f s of CPU time", cpu/float64(time.Second)))
	}
	if p.DurationNanos > 0 {
		parts = append(parts, fmt.Sprintf("in %.2f s", time.Duration(p.DurationNanos).Seconds()))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, " ")
}

// room returns how many columns of a line are left for a name, 0 for any number.
func room(width, taken int) int {
	const least = 20 // shorter names say nothing; then the line is longer
	if width <= 0 {
		return 0
	}
	return max(width-taken, least)
}

// shorten makes name at most width runes long, 0 for any length: first without its arguments, then without its
// beginning, since the method is at the end and the package is not missed.
func shorten(name string, width int) string {
	if width <= 0 || len(name) <= width {
		return name
	}
	runes := []rune(name)
	if open := arguments(name); open > 0 && len(runes) > width {
		runes = []rune(name[:open] + "(…)")
	}
	return keepEnd(string(runes), width)
}

// keepEnd makes text at most width runes long, 0 for any length, by cutting its beginning.
func keepEnd(text string, width int) string {
	if width <= 0 || len(text) <= width {
		return text
	}
	runes := []rune(text)
	if len(runes) > width {
		runes = append([]rune{'…'}, runes[len(runes)-width+1:]...)
	}
	return string(runes)
}

// arguments returns where the arguments at the end of a C++ name begin, or -1. Other parentheses are part of the
// name: (anonymous namespace)::f(int), Go's pkg.(*T).f.
func arguments(name string) int {
	name = strings.TrimSuffix(name, " const")
	if !strings.HasSuffix(name, ")") {
		return -1
	}
	depth := 0
	for i := len(name) - 1; i >= 0; i-- {
		switch name[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// flush ends a view; out has kept the first error of all writes.
func flush(out *bufio.Writer, view string) error {
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", view, err)
	}
	return nil
}
