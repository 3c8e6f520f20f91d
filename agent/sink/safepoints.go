package sink

import (
	"bufio"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// Safepoints writes for which operations a VM stopped its threads, and what collected garbage meanwhile, the longest time
// first: how long in all, for what part of the recording, how often, and how long on average. Several processes have a table
// each, as their times do not add up to a part of the recording. Nil options are DefaultViewOptions. It fails if the profile
// has no safepoints.
func Safepoints(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	e, err := readEvents(p, profile.Pauses)
	if err != nil {
		return err
	}
	const pauses, stopped = 0, 1
	var (
		processes []string
		byProcess = make(map[string]*eventGroups[string])
	)
	for sample, t := range e.all() {
		name := processName(sample)
		operations := byProcess[name]
		if operations == nil {
			operations = new(eventGroups[string])
			processes, byProcess[name] = append(processes, name), operations
		}
		what := label(sample, labelKind)
		if what == "" {
			what = unnamed
		}
		if collector := label(sample, labelCollector); collector != "" && collector != profile.UnnamedCollector {
			what += ", " + collector
		}
		operations.of(what).add(t)
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Safepoints%s\n", elapsed(p))
	e.writeObserved(out, opts)
	duration := float64(max(p.DurationNanos, 0))
	of := func(t tally) string {
		if duration == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f%%", 100*t.values[stopped]/duration)
	}
	for _, name := range processes {
		operations := byProcess[name]
		all := operations.total()
		out.WriteByte('\n')
		writeFolded(out, fmt.Sprintf("%s: stopped for %s in %s pauses (%s of the time)", shorten(name, opts.Width),
			timeScale.of(all.values[stopped]), quantity(all.values[pauses]), of(all)), opts.Width)
		table := eventTable{opts: opts, out: out, order: []int{stopped, pauses}}
		table.columns = []eventColumn{
			shareColumn(stopped, all), {"of time", of}, valueColumn("stopped", stopped, timeScale.of), valueColumn("pauses", pauses, quantity),
			{"mean", func(t tally) string {
				if t.values[pauses] == 0 {
					return "-"
				}
				return timeScale.of(t.values[stopped] / t.values[pauses])
			}},
		}
		writeEvents(&table, "operation", operations)
	}
	return flush(out, "safepoints")
}
