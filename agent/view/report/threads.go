package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// A threadKey is a thread of a process, or a group of threads.
type threadKey struct {
	process string
	name    string
}

// Threads writes which groups of threads used the CPU, or whatever else the profile counts, and
// below each group its threads, the most first. See stored.ThreadGroup. Nil options are
// layout.DefaultOptions.
func Threads(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	sampleType, err := stacks.TimeType(p)
	if err != nil {
		return err
	}
	s, err := stacks.NewSamples(p, sampleType)
	if err != nil {
		return err
	}
	if !opts.Idle {
		s.LeaveWaits()
	}
	type group struct {
		key     threadKey
		sum     uint64
		threads map[string]uint64
	}
	groups, total, several := make(map[threadKey]*group), uint64(0), stacks.SeveralProcesses(p)
	for sample, value := range s.All() {
		thread := cmp.Or(stacks.Label(sample, stored.LabelThread), stored.Unnamed)
		key := threadKey{name: stored.ThreadGroup(thread)}
		if several {
			key.process = stacks.ProcessName(sample)
		}
		g := groups[key]
		if g == nil {
			g = &group{key: key, threads: make(map[string]uint64)}
			groups[key] = g
		}
		g.sum += value
		total += value
		if tid := stacks.Number(sample, stored.LabelTID); tid != 0 {
			thread += fmt.Sprintf(" (tid %d)", tid)
		}
		g.threads[thread] += value
	}
	list := make([]*group, 0, len(groups))
	for _, g := range groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.sum, a.sum), cmp.Compare(a.key.process, b.key.process),
			cmp.Compare(a.key.name, b.key.name))
	})
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Threads%s\n", stacks.Elapsed(p))
	row := func(sum uint64, name string, indent int) layout.Row {
		return layout.Row{Cells: []string{stored.Percent(float64(sum), float64(total)), s.Amount(float64(sum))},
			Name: func(width int) string {
				return strings.Repeat(" ", indent) + layout.KeepEnd(name, max(width-indent, 0))
			}}
	}
	grid := layout.Grid{Head: []layout.Row{{Cells: []string{"share", s.Unit()},
		Name: layout.Heading("group / thread")}}}
	shown, rest := layout.First(opts.N, list)
	for _, g := range shown {
		name := g.key.name
		if n := len(g.threads); n > 1 {
			name += fmt.Sprintf("  %d threads", n)
		}
		if g.key.process != "" {
			name += ", " + g.key.process
		}
		if len(g.threads) == 1 {
			for thread := range g.threads {
				name = strings.Replace(name, g.key.name, thread, 1)
			}
		}
		grid.Rows = append(grid.Rows, row(g.sum, name, 0))
		if len(g.threads) == 1 {
			continue
		}
		names := make([]string, 0, len(g.threads))
		for thread := range g.threads {
			names = append(names, thread)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(cmp.Compare(g.threads[b], g.threads[a]), strings.Compare(a, b))
		})
		some, more := names, []string(nil)
		if opts.N > 0 {
			some, more = layout.First(layout.MaxParts, names)
		}
		for _, thread := range some {
			grid.Rows = append(grid.Rows, row(g.threads[thread], thread, 2))
		}
		if len(more) > 0 {
			var sum uint64
			for _, thread := range more {
				sum += g.threads[thread]
			}
			grid.Rows = append(grid.Rows, row(sum, fmt.Sprintf("%d more", len(more)), 2))
		}
	}
	if len(rest) > 0 {
		var sum uint64
		for _, g := range rest {
			sum += g.sum
		}
		grid.Rows = append(grid.Rows, row(sum, stored.Plural(len(rest), "more group"), 0))
	}
	grid.Write(out, opts.Width)
	return layout.Flush(out, "threads")
}
