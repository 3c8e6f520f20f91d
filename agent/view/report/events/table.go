package events

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

const (
	// maxPartCell bounds the columns of a part's kind and place: the longest of our own is
	// humongous.
	maxPartCell = 10
	// minPartName is how many columns of a class are shown at least: fewer say nothing.
	minPartName = 12
)

// An eventColumn is a column of a table of events.
type eventColumn struct {
	head string
	cell func(tally) string
}

// An eventTable is a table of methods, or of something else, with their parts below them.
type eventTable struct {
	columns []eventColumn
	order   []int // indexes of the values to sort by, largest first
	opts    *layout.Options
	out     *bufio.Writer
}

// writeBelow is writeEvents below an empty line.
func writeBelow(t *eventTable, thing string, groups *eventGroups[string]) {
	t.out.WriteByte('\n')
	writeEvents(t, thing, groups)
}

// writeEvents writes a table of things of that name.
func writeEvents(t *eventTable, thing string, groups *eventGroups[string]) {
	shown, rest := layout.First(t.opts.N, groups.sorted(t.order...))
	if len(rest) == 1 && len(shown) > 0 { // its line takes no more room than one that says "1 more"
		shown, rest = append(slices.Clip(shown), rest...), nil
	}
	row := func(of tally, name func(int) string) layout.Row {
		r := layout.Row{Name: name}
		for _, c := range t.columns {
			r.Cells = append(r.Cells, c.cell(of))
		}
		return r
	}
	head := layout.Row{Name: layout.Heading(thing)}
	for _, c := range t.columns {
		head.Cells = append(head.Cells, c.head)
	}
	if t.opts.Parts < 0 {
		thing, _, _ = strings.Cut(thing, " / ")
		head.Name = layout.Heading(thing)
	}
	g := layout.Grid{Head: []layout.Row{head}}
	plan, all := newPartLayout(shown), groups.total()
	for _, group := range shown {
		g.Rows = append(g.Rows, row(group.tally, func(width int) string { return layout.Shorten(group.key, width) }))
		parts, more := t.split(group.parts.sorted(t.order...), all)
		for _, p := range parts {
			g.Rows = append(g.Rows, row(p.tally, func(width int) string { return plan.name(p.key, width) }))
		}
		if len(more) > 0 {
			g.Rows = append(g.Rows, row(sumOf(more), layout.Heading(fmt.Sprintf("  %d more", len(more)))))
		}
	}
	if len(rest) > 0 {
		g.Rows = append(g.Rows, row(sumOf(rest), layout.Heading(fmt.Sprintf("%d more", len(rest)))))
	}
	g.Write(t.out, t.opts.Width)
}

// split returns which parts of a method have a line each, and those that share one: what is too
// many, and at the end what would be shown as 0.0 % of all.
func (t *eventTable) split(parts []*eventGroup[eventPart], all tally) (shown, more []*eventGroup[eventPart]) {
	const visible = 0.0005
	if t.opts.N <= 0 {
		return parts, nil
	}
	if t.opts.Parts < 0 {
		return nil, nil
	}
	n := min(cmp.Or(t.opts.Parts, layout.MaxParts), len(parts))
	main := t.order[0]
	for n > 1 && parts[n-1].values[main] < visible*all.values[main] {
		n--
	}
	if n == len(parts)-1 { // the line of the others takes as much room
		n++
	}
	return parts[:n], parts[n:]
}

func sumOf[K comparable](groups []*eventGroup[K]) (sum tally) {
	for _, g := range groups {
		sum.add(g.tally)
	}
	return sum
}

// A partLayout says how wide the columns of parts are; what no part has is no column.
type partLayout struct{ what, place int }

func newPartLayout(groups []*eventGroup[string]) (l partLayout) {
	for _, group := range groups {
		for _, p := range group.parts.list {
			l.what = max(l.what, min(layout.Columns(p.key.what), maxPartCell))
			l.place = max(l.place, min(layout.Columns(p.key.place), maxPartCell))
		}
	}
	return l
}

// name writes a part in at most width columns, 0 for any number: kind, place, and the class with
// its field and offset.
func (l partLayout) name(p eventPart, width int) string {
	const indent = "  "
	var head strings.Builder
	for _, cell := range []struct {
		text  string
		width int
	}{{p.what, l.what}, {p.place, l.place}} {
		if cell.width == 0 {
			continue
		}
		text := layout.KeepEnd(cell.text, maxPartCell)
		if text == "" {
			text = "-"
		}
		head.WriteString(text + strings.Repeat(" ", cell.width-min(layout.Columns(text), cell.width)) + indent)
	}
	class := cmp.Or(p.class, stored.Unnamed)
	if p.field != "" {
		class += "." + p.field
	}
	if p.atOffset {
		class += fmt.Sprintf(" +%d", p.offset)
	}
	if width > 0 {
		width = max(width-len(indent)-layout.Columns(head.String()), minPartName)
	}
	return indent + head.String() + layout.KeepEnd(class, width)
}

// total adds up all groups.
func (g *eventGroups[K]) total() tally { return sumOf(g.list) }

// valueColumn is that of a value itself, as write shows it.
func valueColumn(head string, i int, write func(float64) string) eventColumn {
	return eventColumn{head, func(t tally) string { return write(t.values[i]) }}
}

// shareColumn is that of a value in all.
func shareColumn(i int, all tally) eventColumn {
	return eventColumn{"share", func(t tally) string { return stored.Percent(t.values[i], all.values[i]) }}
}

// intervalColumns is the interval of that share, unless all is exact, or there is none of parts.
func (e *storedEvents) intervalColumns(i int, all tally) []eventColumn {
	if all.variance == 0 || !e.apportioned() {
		return nil
	}
	return []eventColumn{{"±95%", func(t tally) string { return halfWidth(t.shareInterval(i, all), "") }}}
}

// halfWidth writes half of an interval, which may be unknown.
func halfWidth(half float64, unit string) string {
	if math.IsInf(half, 1) || math.IsNaN(half) {
		return "±?"
	}
	return fmt.Sprintf("±%.1f%s", half, unit)
}

// eventsColumn is how many events are behind the figures.
var eventsColumn = eventColumn{"events", func(t tally) string { return layout.Quantity(t.events) }}
