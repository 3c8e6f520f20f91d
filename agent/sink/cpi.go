package sink

import (
	"bufio"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// CPI writes which methods took the CPU's cycles, the most first, what they executed meanwhile, and the cycles for each
// instruction, as in the appendix of Inoue and Nakatani (OOPSLA 2009). The method is the innermost of the stack, native
// or not. Nil options are DefaultViewOptions. It fails if the profile has no cycles.
func CPI(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	e, err := readEvents(p, profile.Cycles)
	if err != nil {
		return err
	}
	var byMethod eventGroups[string]
	for sample, t := range e.all() {
		byMethod.of(e.stacks.edge(sample).Callee.Name).add(t)
	}
	const cycles, instructions = 0, 1
	out, all := bufio.NewWriter(w), byMethod.total()
	writeFolded(out, fmt.Sprintf("Cycles%s: %s cycles, %s instructions, CPI %s, from %s events", elapsed(p),
		quantity(all.values[cycles]), quantity(all.values[instructions]), ratio(all.values[cycles], all.values[instructions]),
		quantity(all.events)), opts.Width)
	share := func(i int, of tally) string { return percent(of.values[i], all.values[i]) }
	table := eventTable{opts: opts, out: out, order: []int{cycles, instructions}}
	table.columns = []eventColumn{
		{"cycles", func(t tally) string { return share(cycles, t) }},
		{"", func(t tally) string { return quantity(t.values[cycles]) }},
		{"instr.", func(t tally) string { return share(instructions, t) }},
		{"", func(t tally) string { return quantity(t.values[instructions]) }},
		{"CPI", func(t tally) string { return ratio(t.values[cycles], t.values[instructions]) }},
		eventsColumn,
	}
	out.WriteByte('\n')
	writeEvents(&table, "method", &byMethod)
	return flush(out, "cycles")
}

// ratio writes a/b.
func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}
