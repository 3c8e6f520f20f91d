package report

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// A scale is the suffixes of a unit, each so many times the one before.
type scale struct {
	suffixes []string
	step     float64
	decimals int // of all but the first
}

var (
	// bytesScale is decimal, as in top and on the pages: 1 kB is 1000 bytes.
	bytesScale = scale{[]string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}, 1000, 1}
	timeScale  = scale{[]string{"ns", "us", "ms", "s"}, 1000, 2}
	countScale = scale{[]string{"", "k", "M", "G", "T", "P", "E"}, 1000, 2}
)

// of writes a value with the largest suffix of which there is at least one.
func (s scale) of(value float64) string {
	i := 0
	for ; i < len(s.suffixes)-1 && value >= s.step; i++ {
		value /= s.step
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", value, s.suffixes[0])
	}
	return fmt.Sprintf("%.*f%s", s.decimals, value, s.suffixes[i])
}

// quantity writes a number of things: whole as long as it is short.
func quantity(value float64) string {
	const whole = 1e7
	if value < whole {
		return fmt.Sprintf("%.0f", value)
	}
	return countScale.of(value)
}

// manyOf writes a number and the plural of what it counts, which ends in s: "2 events", "1 event".
func manyOf(number, things string) string {
	if number == "1" {
		things = strings.TrimSuffix(things, "s")
	}
	return number + " " + things
}

// amount writes a value of a sample type for people: bytes, times, costs, and what a CPU does in large numbers with a suffix, and
// any other number whole.
func amount(t *pprof.ValueType, value float64) string {
	if cost, ok := stored.CostOf(t); ok {
		return cost.String(value)
	}
	switch {
	case t.Unit == stored.UnitBytes:
		return bytesScale.of(value)
	case t.Unit == stored.UnitTime:
		return timeScale.of(value)
	case t.Type == "cycles", t.Type == "instructions":
		return quantity(value)
	}
	return fmt.Sprintf("%.0f", value)
}

// typeWords are what values of a sample type are called behind an amount, where that is not the type's name.
var typeWords = map[string]string{"alloc_space": "allocated", "inuse_space": "in use"}

// word is what values of a sample type are called behind an amount.
func word(sampleType string) string {
	if w := typeWords[sampleType]; w != "" {
		return w
	}
	return stored.Printable(sampleType)
}

const (
	// maxParts bounds the parts of a method that are shown, unless all methods are.
	maxParts = 5
	// maxPartCell bounds the columns of a part's kind and place: the longest of our own is humongous.
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
	order   []int // of the values that the largest come first by
	opts    *ViewOptions
	out     *bufio.Writer
}

// writeEvents writes a table of things of that name.
func writeEvents(t *eventTable, thing string, groups *eventGroups[string]) {
	shown, rest := first(t.opts.N, groups.sorted(t.order...))
	row := func(of tally, name func(int) string) gridRow {
		r := gridRow{name: name}
		for _, c := range t.columns {
			r.cells = append(r.cells, c.cell(of))
		}
		return r
	}
	head := gridRow{name: heading(thing)}
	for _, c := range t.columns {
		head.cells = append(head.cells, c.head)
	}
	if t.opts.parts < 0 {
		thing, _, _ = strings.Cut(thing, " / ")
		head.name = heading(thing)
	}
	g := grid{head: []gridRow{head}}
	layout, all := newPartLayout(shown), groups.total()
	for _, group := range shown {
		g.rows = append(g.rows, row(group.tally, func(width int) string { return shorten(group.key, width) }))
		parts, more := t.split(group.parts.sorted(t.order...), all)
		for _, p := range parts {
			g.rows = append(g.rows, row(p.tally, func(width int) string { return layout.name(p.key, width) }))
		}
		if len(more) > 0 {
			g.rows = append(g.rows, row(sumOf(more), heading(fmt.Sprintf("  %d more", len(more)))))
		}
	}
	if len(rest) > 0 {
		g.rows = append(g.rows, row(sumOf(rest), heading(fmt.Sprintf("%d more", len(rest)))))
	}
	g.write(t.out, t.opts.Width)
}

// split returns which parts of a method have a line each, and those that share one: what is too many, and at the end what
// would be shown as 0.0 % of all.
func (t *eventTable) split(parts []*eventGroup[eventPart], all tally) (shown, more []*eventGroup[eventPart]) {
	const visible = 0.0005
	if t.opts.N <= 0 {
		return parts, nil
	}
	if t.opts.parts < 0 {
		return nil, nil
	}
	n := min(cmp.Or(t.opts.parts, maxParts), len(parts))
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
			l.what = max(l.what, min(utf8.RuneCountInString(p.key.what), maxPartCell))
			l.place = max(l.place, min(utf8.RuneCountInString(p.key.place), maxPartCell))
		}
	}
	return l
}

// name writes a part in at most width columns, 0 for any number: kind, place, and the class with its field and offset.
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
		text := keepEnd(cell.text, maxPartCell)
		if text == "" {
			text = "-"
		}
		head.WriteString(text + strings.Repeat(" ", cell.width-min(utf8.RuneCountInString(text), cell.width)) + indent)
	}
	class := p.class
	if class == "" {
		class = stored.Unnamed
	}
	if p.field != "" {
		class += "." + p.field
	}
	if p.atOffset {
		class += fmt.Sprintf(" +%d", p.offset)
	}
	if width > 0 {
		width = max(width-len(indent)-utf8.RuneCountInString(head.String()), minPartName)
	}
	return indent + head.String() + keepEnd(class, width)
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
	if all.variance == 0 || e.partly() {
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
var eventsColumn = eventColumn{"events", func(t tally) string { return quantity(t.events) }}

// A grid is a table of right-aligned columns, with something of any length at the end of each row.
type grid struct {
	head []gridRow // lines of the heading, as many as needed
	rows []gridRow
}

type gridRow struct {
	cells []string
	name  func(width int) string // the end in at most width columns, 0 for any number; nil for none
}

// heading is the end of a line of the heading.
func heading(text string) func(width int) string { return func(int) string { return text } }

// write writes lines of at most width columns, 0 for any number, as far as the cells leave room for names.
func (g *grid) write(out *bufio.Writer, width int) {
	const gap = 2
	var widths []int
	for _, rows := range [][]gridRow{g.head, g.rows} {
		for _, r := range rows {
			widths = grown(widths, len(r.cells))
			for i, cell := range r.cells {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	taken := 0 // columns before the name
	for _, w := range widths {
		taken += w + gap
	}
	for _, rows := range [][]gridRow{g.head, g.rows} {
		for _, r := range rows {
			var line strings.Builder
			for i, w := range widths {
				cell := ""
				if i < len(r.cells) {
					cell = r.cells[i]
				}
				line.WriteString(strings.Repeat(" ", w-utf8.RuneCountInString(cell)) + cell)
				line.WriteString(strings.Repeat(" ", gap))
			}
			if r.name != nil {
				line.WriteString(r.name(room(width, taken)))
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
}

// room returns how many columns of a line are left for a name, 0 for any number.
func room(width, taken int) int {
	const least = 20 // shorter names say nothing; then the line is longer
	if width <= 0 {
		return 0
	}
	return max(width-taken, least)
}

// shorten makes name at most width runes long, 0 for any length: first without its arguments, then with short packages, then
// without its beginning, since the method is at the end. A leaf [inlined in M] keeps the words, and its M is shortened.
func shorten(name string, width int) string {
	if width <= 0 || len(name) <= width {
		return name
	}
	runes := []rune(name)
	if open := arguments(name); open > 0 && len(runes) > width {
		runes = []rune(name[:open] + "(…)")
	}
	full := string(runes)
	if short := stored.Abbreviate(full, len(runes)-width, 2); utf8.RuneCountInString(short) <= width {
		return short
	}
	before, method, after := stored.SplitInlined(full)
	if left := width - len(before); left >= leastInlined {
		return before + keepEnd(method+after, left)
	}
	return keepEnd(full, width)
}

// leastInlined is how many columns of M in [inlined in M] are shown at least, with the bracket.
const leastInlined = 8

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
