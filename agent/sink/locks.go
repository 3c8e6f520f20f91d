package sink

import (
	"bufio"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// Values of locks.
const (
	lockAcquisitions = iota
	lockContentions
	lockDelay
)

// Locks writes which methods were delayed by locks that others held, the longest delay first, with how often locks were
// contended and acquired. Under each method are its locks by how it got them, place and class, as in the appendix of
// Inoue and Nakatani (OOPSLA 2009). Waits for work, which are no contention, follow in a table of their own. The method
// is the guest's innermost. Nil options are DefaultViewOptions. It fails if the profile has no locks.
func Locks(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	e, err := readEvents(p, profile.Locks)
	if err != nil {
		return err
	}
	var locks, waits eventGroups[string]
	for sample, t := range e.all() {
		groups := &locks
		if !contended(sample) {
			groups = &waits
		}
		method := groups.of(e.site(sample))
		method.add(t)
		method.parts.of(partOf(e.kind, sample)).add(t)
	}

	out, all := bufio.NewWriter(w), locks.total()
	writeFolded(out, fmt.Sprintf("Locks%s: %s (%s) of delay in %s contentions, %s acquisitions, from %s events", elapsed(p),
		timeScale.of(all.values[lockDelay]), e.about(all), quantity(all.values[lockContentions]), quantity(all.values[lockAcquisitions]),
		quantity(all.events)), opts.Width)
	e.writeObserved(out, opts)
	table := eventTable{opts: opts, out: out, order: []int{lockDelay, lockContentions, lockAcquisitions}}
	table.columns = []eventColumn{
		shareColumn(lockDelay, all), valueColumn("delay", lockDelay, timeScale.of),
		valueColumn("contended", lockContentions, quantity), valueColumn("acquired", lockAcquisitions, quantity), eventsColumn,
	}
	out.WriteByte('\n')
	writeEvents(&table, "method / kind, place, class", &locks)
	if len(waits.list) > 0 {
		all := waits.total()
		fmt.Fprintf(out, "\nWaits for work: %s\n", timeScale.of(all.values[lockDelay]))
		table.columns = []eventColumn{shareColumn(lockDelay, all), valueColumn("time", lockDelay, timeScale.of), eventsColumn}
		writeEvents(&table, "method / kind, place, class", &waits)
	}
	return flush(out, "locks")
}
