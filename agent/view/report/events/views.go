package events

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Allocations writes which classes of objects were allocated, and which methods allocated them, the
// most bytes first. Under each method are its objects by generation and class, as in the appendix
// of Inoue and Nakatani (OOPSLA 2009). The method is the program's innermost; where that is in the
// class library, the application's methods follow. Nil options are layout.DefaultOptions. It
// fails if the profile has no allocations.
//
// Bytes and objects are estimates from a number of events, which is shown next to them. From that
// follows the interval of the share: it holds the true one in 95 of 100 cases. A sum of n events of
// about equal weight has the relative standard error 1/sqrt(n); see tally for other weights. With
// less than ten events it is rough. Where every object was counted there is no interval.
func Allocations(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	e, err := readEvents(p, profile.Allocations)
	if err != nil {
		return err
	}
	var byClass, byMethod, byApp eventGroups[string]
	throughLibrary := false
	for sample, t := range e.all() {
		part := partOf(e.kind, sample)
		class := cmp.Or(part.class, stored.Unnamed)
		byClass.get(class).add(t)
		innermost, app := e.site(sample), e.appSite(sample)
		byMethod.addPart(innermost, part, t)
		byApp.get(app).add(t)
		throughLibrary = throughLibrary || app != innermost
	}

	const objects, space = 0, 1
	out, all := bufio.NewWriter(w), byClass.total()
	layout.Fold(out, fmt.Sprintf("Allocations%s: %s (%s), %s, from %s", stacks.Elapsed(p),
		layout.Bytes.Format(all.values[space]), e.about(all), layout.ManyOf(layout.Quantity(all.values[objects]),
			"objects"), layout.ManyOf(layout.Quantity(all.events), "events")), opts.Width)
	e.writeObserved(out, opts)
	table := eventTable{opts: opts, out: out, order: []int{space, objects}}
	table.columns = append(table.columns, shareColumn(space, all))
	table.columns = append(table.columns, e.intervalColumns(space, all)...)
	table.columns = append(table.columns, valueColumn("bytes", space, layout.Bytes.Format),
		valueColumn("objects", objects, layout.Quantity), eventsColumn)
	writeBelow(&table, "class", &byClass)
	writeBelow(&table, "method / generation, class", &byMethod)
	if throughLibrary {
		writeBelow(&table, "the application's method, with what it calls in the class library", &byApp)
	}
	if e.stacks.Keep != nil {
		e.writeCounted(out, opts)
	}
	switch {
	case e.partly():
		layout.Fold(out, "Only the total has an interval: a class or method may be more frequent in the time or the "+
			"events that were not recorded.", opts.Width)
	case !e.apportioned():
		layout.Fold(out, "Only the total has an interval: "+e.stated.repeated+".", opts.Width)
	case all.variance > 0:
		layout.Fold(out, fmt.Sprintf("±: 95 %% interval of the share of bytes, in percentage points; "+
			"?: no interval, because there are fewer than %d events", leastEvents), opts.Width)
	}
	return layout.Flush(out, "allocations")
}

// writeCounted writes which classes of objects were allocated by the counts of each one, of a
// profile that has these next to estimates.
func (e *storedEvents) writeCounted(out *bufio.Writer, opts *layout.Options) {
	var byClass eventGroups[string]
	for sample, t := range e.those(stacks.Counted) {
		class := cmp.Or(stacks.Label(sample, stored.LabelClass), stored.Unnamed)
		byClass.get(class).add(t)
	}
	const objects, space = 0, 1
	all := byClass.total()
	fmt.Fprintf(out, "\nEvery object was also counted: %s, %s objects\n", layout.Bytes.Format(all.values[space]),
		layout.Quantity(all.values[objects]))
	table := eventTable{opts: opts, out: out, order: []int{space, objects}}
	table.columns = []eventColumn{shareColumn(space, all), valueColumn("bytes", space, layout.Bytes.Format),
		valueColumn("objects", objects, layout.Quantity)}
	writeEvents(&table, "class", &byClass)
}

// CPI writes a table of methods by CPU cycles, the most first, with their instructions and their
// cycles per instruction, as in the appendix of Inoue and Nakatani (OOPSLA 2009). The method is the
// innermost frame, which may be native. Nil options are layout.DefaultOptions. It fails if the
// profile has no cycles.
func CPI(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	e, err := readEvents(p, profile.Cycles)
	if err != nil {
		return err
	}
	var byMethod eventGroups[string]
	for sample, t := range e.all() {
		byMethod.get(e.stacks.Edge(sample).Callee.Name).add(t)
	}
	const cycles, instructions = 0, 1
	out, all := bufio.NewWriter(w), byMethod.total()
	layout.Fold(out, fmt.Sprintf("Cycles%s: %s cycles, %s instructions, CPI %s, from %s", stacks.Elapsed(p),
		layout.Quantity(all.values[cycles]), layout.Quantity(all.values[instructions]),
		ratio(all.values[cycles], all.values[instructions]),
		layout.ManyOf(layout.Quantity(all.events), "events")), opts.Width)
	share := func(i int, of tally) string { return stored.Percent(of.values[i], all.values[i]) }
	table := eventTable{opts: opts, out: out, order: []int{cycles, instructions}}
	table.columns = []eventColumn{
		{"cycles", func(t tally) string { return share(cycles, t) }},
		{"", func(t tally) string { return layout.Quantity(t.values[cycles]) }},
		{"instr.", func(t tally) string { return share(instructions, t) }},
		{"", func(t tally) string { return layout.Quantity(t.values[instructions]) }},
		{"CPI", func(t tally) string { return ratio(t.values[cycles], t.values[instructions]) }},
		eventsColumn,
	}
	writeBelow(&table, "method", &byMethod)
	layout.Fold(out, "experimental, not verified on hardware: no available machine had these counters", opts.Width)
	return layout.Flush(out, "cycles")
}

// ratio writes a/b.
func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// Faults writes which methods touched memory for the first time, the most page faults first. Under
// each method are the data addresses by place, class, field and offset in the object, as in the
// appendix of Inoue and Nakatani (OOPSLA 2009). The method is the program's innermost. Nil options
// are layout.DefaultOptions. It fails if the profile has no faults.
func Faults(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	return writeTouches(w, p, opts, profile.Faults, "first touches of memory", "method / place, class.field +offset")
}

// Barriers writes which methods stored references into old objects, by the cards that they made
// dirty, the most first. Under each method are the objects by place and class. The method is the
// program's innermost. Nil options are layout.DefaultOptions. It fails if the profile has no write
// barriers.
func Barriers(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	return writeTouches(w, p, opts, profile.Barriers, "cards made dirty by stores into old objects",
		"method / place, class stored into")
}

// Exceptions writes which methods created exceptions, the most first. Under each method are their
// classes. The method is the program's innermost. Nil options are layout.DefaultOptions. It fails
// if the profile has no exceptions.
func Exceptions(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	return writeTouches(w, p, opts, profile.Exceptions, "created with a stack trace", "method / class")
}

// writeTouches writes what objects were touched, or created, by method.
func writeTouches(
	w io.Writer, p *pprof.Profile, opts *layout.Options, kind profile.EventKind, what, heading string,
) error {
	opts = opts.OrDefault()
	e, err := readEvents(p, kind)
	if err != nil {
		return err
	}
	var byMethod eventGroups[string]
	for sample, t := range e.all() {
		byMethod.addPart(e.site(sample), partOf(e.kind, sample), t)
	}
	out, all := bufio.NewWriter(w), byMethod.total()
	layout.Fold(out, fmt.Sprintf("%s%s: %s (%s) %s, from %s", kind.Describe().Title, stacks.Elapsed(p),
		layout.Quantity(all.values[0]), e.about(all), what,
		layout.ManyOf(layout.Quantity(all.events), "events")), opts.Width)
	e.writeObserved(out, opts)
	table := eventTable{opts: opts, out: out, order: []int{0}}
	column := strings.ToLower(kind.Describe().Page.Column)
	table.columns = []eventColumn{shareColumn(0, all), valueColumn(column, 0, layout.Quantity), eventsColumn}
	writeBelow(&table, heading, &byMethod)
	return layout.Flush(out, kind.Describe().Events)
}

// Values of locks.
const (
	lockAcquisitions = iota
	lockContentions
	lockDelay
)

// Locks writes which methods were delayed by locks that others held, the longest delay first, with
// how often locks were contended and acquired. Under each method are its locks by how it got them,
// place and class, as in the appendix of Inoue and Nakatani (OOPSLA 2009). Who was seen to have the
// locks meanwhile follows. Waits for work, which are no contention, follow in a table of their own.
// The method is the application's innermost. Nil options are layout.DefaultOptions. It fails if the
// profile has no locks.
func Locks(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	e, err := readEvents(p, profile.Locks)
	if err != nil {
		return err
	}
	var locks, waits, holders eventGroups[string]
	for sample, t := range e.all() {
		groups := &locks
		if who := holderOf(sample); who != "" {
			holders.get(who).add(t)
		}
		if !stacks.Contended(sample) {
			groups = &waits
		}
		groups.addPart(e.site(sample), partOf(e.kind, sample), t)
	}

	out, all := bufio.NewWriter(w), locks.total()
	layout.Fold(out, fmt.Sprintf("Locks%s: %s (%s) of delay in %s, %s, from %s", stacks.Elapsed(p),
		layout.Time.Format(all.values[lockDelay]), e.about(all), layout.ManyOf(layout.Quantity(all.values[lockContentions]),
			"contentions"),
		layout.ManyOf(layout.Quantity(all.values[lockAcquisitions]), "acquisitions"),
		layout.ManyOf(layout.Quantity(all.events), "events")), opts.Width)
	e.writeObserved(out, opts)
	table := eventTable{opts: opts, out: out, order: []int{lockDelay, lockContentions, lockAcquisitions}}
	table.columns = []eventColumn{
		shareColumn(lockDelay, all), valueColumn("delay", lockDelay, layout.Time.Format),
		valueColumn("contended", lockContentions, layout.Quantity),
		valueColumn("acquired", lockAcquisitions, layout.Quantity), eventsColumn,
	}
	writeBelow(&table, "method / kind, place, class", &locks)
	if len(holders.list) > 0 {
		fmt.Fprintf(out, "\nWho held the locks during these waits (seen for %s of the delay):\n",
			stored.Percent(holders.total().values[lockDelay], all.values[lockDelay]))
		held, few := table, *opts
		if held.opts = &few; opts.N > 0 {
			few.N = min(opts.N, layout.MaxParts)
		}
		held.columns = []eventColumn{shareColumn(lockDelay, all), valueColumn("delay", lockDelay, layout.Time.Format),
			eventsColumn}
		writeEvents(&held, "method, thread", &holders)
	}
	if len(waits.list) > 0 {
		all := waits.total()
		fmt.Fprintf(out, "\nWaits for work: %s\n", layout.Time.Format(all.values[lockDelay]))
		table.columns = []eventColumn{shareColumn(lockDelay, all), valueColumn("time", lockDelay, layout.Time.Format),
			eventsColumn}
		writeEvents(&table, "method / kind, place, class", &waits)
	}
	return layout.Flush(out, "locks")
}

// OffCPU writes what threads waited for when they used no CPU, and which methods waited, the
// longest time first. The time is that of all threads together. Under each method are the causes.
// The method is the application's innermost. Nil options are layout.DefaultOptions. It fails if the
// profile has no off-CPU time.
func OffCPU(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	const waits, offCPU = 0, 1
	return writeTimes(w, p, profile.OffCPU, opts, valueColumn("waits", waits, layout.Quantity),
		eventColumn{"mean", func(t tally) string {
			if t.values[waits] < 1 {
				return "-"
			}
			return layout.Time.Format(t.values[offCPU] / t.values[waits])
		}})
}

// Wall writes what threads did all the time, on the CPU and off it, by cause and by method, as
// OffCPU does.
func Wall(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	return writeTimes(w, p, profile.Wall, opts)
}

// writeTimes writes times by cause and by method, and more columns. The sum has no number of waits:
// one that ends on a run queue is two rows.
func writeTimes(
	w io.Writer, p *pprof.Profile, kind profile.EventKind, opts *layout.Options, columns ...eventColumn,
) error {
	opts = opts.OrDefault()
	e, err := readEvents(p, kind)
	if err != nil {
		return err
	}
	var byCause, byMethod, byWaker eventGroups[string]
	var all, hidden tally
	for sample, t := range e.all() {
		all.add(t)
		part := partOf(e.kind, sample)
		if part.class == cause.Idle && !opts.Idle {
			hidden.add(t)
			continue
		}
		byCause.get(cmp.Or(part.class, stored.Unnamed)).add(t)
		byMethod.addPart(e.site(sample), part, t)
		if who, method := e.waker(sample); who != "" {
			waker := byWaker.get(who)
			waker.add(t)
			if method != "" {
				waker.parts.get(eventPart{class: method}).add(t)
			}
		}
	}
	out, time, shown := bufio.NewWriter(w), kind.Main(), byCause.total()
	name := kind.Describe().Events
	layout.Fold(out, fmt.Sprintf("%s%s: %s (%s) of all threads together, from %s", strings.ToUpper(name[:1])+name[1:],
		stacks.Elapsed(p),
		layout.Time.Format(all.values[time]), e.about(all), layout.ManyOf(layout.Quantity(all.events), "events")),
		opts.Width)
	e.writeObserved(out, opts)
	if hidden.values[time] > 0 {
		layout.Fold(out, fmt.Sprintf("hidden: %s (%s) of threads with nothing to do; --idle shows them",
			layout.Time.Format(hidden.values[time]), stored.Percent(hidden.values[time], all.values[time])), opts.Width)
	}
	table := eventTable{opts: opts, out: out, order: []int{time}}
	table.columns = append([]eventColumn{shareColumn(time, shown), valueColumn("time", time, layout.Time.Format)},
		e.timeIntervalColumns(time, &all)...)
	intervals := len(table.columns) > 2
	table.columns = append(table.columns, columns...)
	writeBelow(&table, "cause", &byCause)
	writeBelow(&table, "method / cause", &byMethod)
	if len(byWaker.list) > 0 {
		writeBelow(&table, "woken by / in method", &byWaker)
	}
	if intervals {
		layout.Fold(out, "±: 95 % interval in percent of the time, because short waits and CPU time are sampled; "+
			"?: too few samples for an interval", opts.Width)
	}
	return layout.Flush(out, name)
}

// Safepoints writes a table of the VM operations that stopped all threads, with the garbage
// collector at work, the longest total time first. Columns are the total time, its share of the
// recording, the number of pauses and their mean. Each process has a table of its own, as pauses of
// several processes overlap. Nil options are layout.DefaultOptions. It fails if the profile has no
// safepoints.
func Safepoints(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
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
		name := stacks.ProcessName(sample)
		operations := byProcess[name]
		if operations == nil {
			operations = new(eventGroups[string])
			processes, byProcess[name] = append(processes, name), operations
		}
		what := cmp.Or(stacks.Label(sample, stored.LabelKind), stored.Unnamed)
		if collector := stacks.Label(sample, stored.LabelCollector); collector != "" &&
			collector != profile.UnnamedCollector {
			what += ", " + collector
		}
		operations.get(what).add(t)
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Safepoints%s\n", stacks.Elapsed(p))
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
		layout.Fold(out, fmt.Sprintf("%s: stopped for %s in %s pauses (%s of the time)",
			layout.Shorten(name, opts.Width),
			layout.Time.Format(all.values[stopped]), layout.Quantity(all.values[pauses]), of(all)), opts.Width)
		table := eventTable{opts: opts, out: out, order: []int{stopped, pauses}}
		table.columns = []eventColumn{
			shareColumn(stopped, all), {"of time", of}, valueColumn("stopped", stopped, layout.Time.Format),
			valueColumn("pauses", pauses, layout.Quantity),
			{"mean", func(t tally) string {
				if t.values[pauses] == 0 {
					return "-"
				}
				return layout.Time.Format(t.values[stopped] / t.values[pauses])
			}},
		}
		writeEvents(&table, "operation", operations)
	}
	return layout.Flush(out, "safepoints")
}
