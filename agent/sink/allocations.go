package sink

import (
	"bufio"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// Allocations writes which classes of objects were allocated, and which methods allocated them, the most bytes first.
// Under each method are its objects by generation and class, as in the appendix of Inoue and Nakatani (OOPSLA 2009). The
// method is the guest's innermost. Nil options are DefaultViewOptions. It fails if the profile has no allocations.
//
// Bytes and objects are estimates from a number of events, which is given beside them. From that follows the interval of
// the share: it holds the true one in 95 of 100 cases. A sum of n events of about equal weight has the relative standard
// error 1/sqrt(n); see tally for other weights. With less than ten events it is rough, and the events tell more. Where
// every object was counted there is no interval.
func Allocations(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	e, err := readEvents(p, profile.Allocations)
	if err != nil {
		return err
	}
	var byClass, byMethod eventGroups[string]
	for sample, t := range e.all() {
		part := partOf(e.kind, sample)
		class := part.class
		if class == "" {
			class = unnamed
		}
		byClass.of(class).add(t)
		method := byMethod.of(e.site(sample))
		method.add(t)
		method.parts.of(part).add(t)
	}

	const objects, space = 0, 1
	out, all := bufio.NewWriter(w), byClass.total()
	writeFolded(out, fmt.Sprintf("Allocations%s: %s (%s), %s objects, from %s events", elapsed(p),
		bytesScale.of(all.values[space]), e.about(all), quantity(all.values[objects]), quantity(all.events)), opts.Width)
	e.writeObserved(out, opts)
	table := eventTable{opts: opts, out: out, order: []int{space, objects}}
	table.columns = append(table.columns, shareColumn(space, all))
	table.columns = append(table.columns, e.intervalColumns(space, all)...)
	table.columns = append(table.columns, valueColumn("bytes", space, bytesScale.of), valueColumn("objects", objects, quantity), eventsColumn)
	out.WriteByte('\n')
	writeEvents(&table, "class", &byClass)
	out.WriteByte('\n')
	writeEvents(&table, "method / generation, class", &byMethod)
	if e.stacks.keep != nil {
		e.writeCounted(out, opts)
	}
	switch {
	case e.partly():
		writeFolded(out, "Only the total has an interval: a class or method may have been at work mostly in the time, or among the events, "+
			"that were not recorded.", opts.Width)
	case all.variance > 0:
		writeFolded(out, fmt.Sprintf("±: in 95 of 100 cases the true share of the bytes is at most so many points from the one shown; "+
			"?: fewer than %d events do not tell", leastEvents), opts.Width)
	}
	return flush(out, "allocations")
}

// writeCounted writes which classes of objects were allocated by the counts of each one, of a profile that has these beside
// estimates.
func (e *storedEvents) writeCounted(out *bufio.Writer, opts *ViewOptions) {
	var byClass eventGroups[string]
	for sample, t := range e.those(counted) {
		class := label(sample, labelClass)
		if class == "" {
			class = unnamed
		}
		byClass.of(class).add(t)
	}
	const objects, space = 0, 1
	all := byClass.total()
	fmt.Fprintf(out, "\nEach object was counted, too: %s, %s objects\n", bytesScale.of(all.values[space]), quantity(all.values[objects]))
	table := eventTable{opts: opts, out: out, order: []int{space, objects}}
	table.columns = []eventColumn{shareColumn(space, all), valueColumn("bytes", space, bytesScale.of), valueColumn("objects", objects, quantity)}
	writeEvents(&table, "class", &byClass)
}
