package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A Style is how a piece of a line looks.
type Style int

const (
	Plain    Style = iota
	Bold           // what matters
	Dim            // what matters less
	Bar            // headings and the last line
	Selected       // the row of the cursor
	Kernel         // code of the kernel
	Native         // code of libraries
	More           // it grew
	Less           // it shrank
)

// A Span is a piece of a line in one style. Its text is printable.
type Span struct {
	Text  string
	Style Style
}

// A Line is a line of a screen, as wide as the screen at most.
type Line []Span

// String is the text of the line.
func (l Line) String() string {
	var b strings.Builder
	for _, span := range l {
		b.WriteString(span.Text)
	}
	return strings.TrimRight(b.String(), " ")
}

// clip cuts what is beyond the width, as on screens that have no room for a column.
func (l Line) clip(width int) Line {
	for i := range l {
		text, columns := cut(l[i].Text, width)
		l[i].Text = text
		width -= columns
	}
	return l
}

// Sizes below which parts are left out.
const (
	narrow    = 64 // columns: no busiest callers, no shares of code
	wide      = 96 // columns: all columns of services
	leastRows = 3  // rows of the table, if there are so many lines
)

// Lines draws the screen: as many lines as it is high, none wider than it.
func (s *Screen) Lines(width, height int) []Line {
	if width < 1 || height < 1 {
		return nil
	}
	lines := []Line{s.title(width)}
	if s.view == viewHelp {
		lines = append(lines, s.help(width)...)
	} else {
		lines = append(lines, s.header(width, height)...)
		lines = append(lines, s.body(width, height-len(lines)-1)...)
	}
	lines = lines[:min(len(lines), max(height-1, 1))]
	for i := range lines {
		lines[i] = lines[i].clip(width)
	}
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	if height > 1 {
		lines = append(lines, s.footer(width))
	}
	return lines
}

// title is the first line.
func (s *Screen) title(width int) Line {
	m := s.model
	left := "vmprof-agent top"
	if len(m.cpu) > 0 {
		all := m.services(spans[s.span], 0)[0]
		left += fmt.Sprintf("  %.2f of %s in %s, %d samples", all.cpus, cpus(m.cpus), spanName(spans[s.span]),
			all.samples)
		if m.lost > 0 {
			left += fmt.Sprintf(", %d lost", m.lost)
		}
	} else {
		left += "  the first samples come in two seconds"
	}
	right := ""
	if n := len(m.cpu); n > 0 {
		right = m.cpu[n-1].end.Format("15:04:05")
	}
	if m.paused {
		right = "PAUSED " + right
	}
	if len(right)+2 > width {
		right = ""
	}
	return Line{{fit(left, width-len(right)), Bold}, {right, Bold}}
}

func cpus(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return fmt.Sprintf("%d CPUs", n)
}

// spanName is a span for display.
func spanName(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%d min", int(d/time.Minute))
	}
	return fmt.Sprintf("%d s", int(d/time.Second))
}

// header are the services.
func (s *Screen) header(width, height int) []Line {
	cells := 10
	switch {
	case width >= wide+24:
		cells = 30
	case width < narrow:
		cells = 8
	}
	rows := s.model.services(spans[s.span], cells)
	if len(rows) == 1 {
		return nil
	}
	if len(rows) == 2 { // one service is all
		rows = rows[1:]
	}
	name := width - len(s.serviceColumns(nil, width)) - cells - 1
	var heading Line
	if height >= 12 {
		over := "CPU, 60 s"
		if len(over) > cells {
			over = "60 s"
		}
		heading = Line{{fit("  "+fit("SERVICE", name-2)+s.serviceColumns(nil, width)+" "+over, width), Dim}}
	}
	most := min(max((height-8)/3, 1), len(rows))
	shown := rows[:most]
	selected := 0
	for i, row := range rows {
		if row.name == s.service {
			selected = i
		}
	}
	if selected >= most {
		shown = append(rows[:most-1:most-1], rows[selected])
	}
	var lines []Line
	if heading != nil {
		lines = append(lines, heading)
	}
	for _, row := range shown {
		style, mark := Plain, "  "
		if row.name == s.service && len(rows) > 1 {
			style, mark = Bold, "> "
		}
		title := row.name
		switch {
		case title == "":
			title = "all"
			if row.processes > 1 {
				title = fmt.Sprintf("all %d processes", row.processes)
			}
		case row.processes > 1:
			title += fmt.Sprintf(" (%d)", row.processes)
		}
		lines = append(lines, Line{
			{fit(mark+fit(title, name-2)+s.serviceColumns(&row, width)+" ", width-cells), style},
			{s.spark(row.spark), Native},
		})
	}
	if hidden := len(rows) - len(shown); hidden > 0 && height >= 12 {
		lines = append(lines, Line{{fit(fmt.Sprintf("  %d more; Tab selects", hidden), width), Dim}})
	}
	return lines
}

// serviceColumns are the figures of a service, or for nil their headings. Native is what is left:
// libraries and the VM's other threads.
func (s *Screen) serviceColumns(row *serviceRow, width int) string {
	events, queue := narrow, wide+8
	if s.ground() == viewWaits { // what else there is only while another view is open
		events, queue = wide+8, narrow
	}
	columns := []struct {
		heading string
		width   int
		from    int // the width of a screen that has the column
		value   func() string
	}{
		{"CPUs", 5, 0, func() string { return fmt.Sprintf("%.2f", row.cpus) }},
		{"Java", 4, narrow, func() string { return share(row.code[profile.GuestCode], row.samples) }},
		{"JIT", 3, narrow, func() string { return share(row.code[profile.Compiling], row.samples) }},
		{"GC", 3, narrow, func() string { return share(row.code[profile.Collecting], row.samples) }},
		{"kern", 4, narrow, func() string { return share(row.code[profile.KernelCode], row.samples) }},
		{"nat", 3, narrow, func() string {
			return share(row.code[profile.NativeCode]+row.code[profile.Housekeeping], row.samples)
		}},
		{"alloc/s", 7, events, func() string { return known(row.alloc, bytesText) }},
		{"lock/s", 7, events, func() string { return known(row.delay, delayText) }},
		{"runq/s", 7, queue, func() string { return known(row.queued, delayText) }},
		{"pause", 5, narrow, func() string { return known(row.stopped, percent) }},
	}
	var b strings.Builder
	for _, c := range columns {
		if width < c.from {
			continue
		}
		text := c.heading
		if row != nil {
			text = c.value()
		}
		fmt.Fprintf(&b, " %*s", c.width, text)
	}
	return b.String()
}

// share writes a share of the CPU time in whole percent.
func share(of float64, samples uint64) string {
	if samples == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*of)
}

// known writes a value, - if it was not recorded.
func known(value float64, format func(float64) string) string {
	if math.IsNaN(value) {
		return "-"
	}
	return format(value)
}

var (
	blocks      = []rune("▁▂▃▄▅▆▇█")
	asciiBlocks = []rune("_.-=+*%#")
)

// spark draws values relative to the largest of them, which stands for at least a tenth of a CPU.
func (s *Screen) spark(values []float64) string {
	const least = 0.1
	most := least
	for _, v := range values {
		if !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	set := blocks
	if s.ascii {
		set = asciiBlocks
	}
	var b strings.Builder
	for _, v := range values {
		if math.IsNaN(v) {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(set[min(int(v/most*float64(len(set))), len(set)-1)])
	}
	return b.String()
}

// A column is one of the left columns of a table.
type column struct {
	heading string
	width   int
	from    int // the width of a screen that has it
}

// columns are the left columns of a view, and the headings of the others.
func (v view) columns() (left []column, label, name, right string) {
	share, within := column{"share", 6, 0}, column{"95 % range", 10, narrow}
	switch v {
	case viewThreads:
		return []column{share, within}, "", "thread group", "hottest method"
	case viewAllocations:
		return []column{{"alloc/s", 7, 0}, share, within}, "class", "method", "busiest caller"
	case viewLocks:
		return []column{{"delay/s", 7, 0}, share, within}, "lock", "method", "busiest caller"
	case viewWaits:
		return []column{{"wait/s", 7, 0}, share, within}, "cause", "method", "busiest caller"
	case viewChanges:
		return []column{{"now", 6, 0}, {"before", 6, narrow}, {"change", 7, 0}, {"95 %", 5, narrow}}, "", "method",
			"busiest caller"
	}
	return []column{share, within}, "", "method", "busiest caller"
}

// body is the table: its heading and as many rows as fit.
func (s *Screen) body(width, height int) []Line {
	if height < 1 {
		return nil
	}
	if s.view == viewCallers {
		return s.callersBody(width, height)
	}
	left, label, name, right := s.view.columns()
	list := s.table()
	// What is left of the width is for the names.
	rest, heading := width, ""
	var has []bool
	for _, c := range left {
		has = append(has, width >= c.from)
		if width >= c.from {
			heading += fmt.Sprintf("%*s ", c.width, c.heading)
			rest -= c.width + 1
		}
	}
	labelWidth, rightWidth := 0, 0
	if label != "" && width >= narrow {
		labelWidth = rest / 4
		heading += fit(label, labelWidth-1) + " "
	}
	if width >= narrow {
		rightWidth = (rest - labelWidth) * 2 / 5
	}
	nameWidth := rest - labelWidth - rightWidth
	title := fmt.Sprintf("%s%s", name, s.note())
	heading += fit(title, nameWidth)
	if rightWidth > 0 {
		heading += fit(" "+right, rightWidth)
	}
	lines := []Line{{{fit(heading, width), Bar}}}
	s.rows, s.visible = len(list), height-1
	if len(list) == 0 {
		return append(lines, Line{{fit("  "+s.why(), width), Dim}})
	}
	s.cursor = s.find(list)
	s.at = list[s.cursor].key
	first := max(min(s.cursor-s.visible/2, len(list)-s.visible), 0)
	if s.visible < 1 {
		return lines
	}
	for i, r := range list[first:min(first+s.visible, len(list))] {
		text := ""
		for j, figure := range r.figures {
			if has[j] {
				text += fmt.Sprintf("%*s ", left[j].width, figure)
			}
		}
		if labelWidth > 0 {
			text += fit(shorten(r.label, labelWidth-1, 1), labelWidth-1) + " "
		}
		var line Line
		styles := [3]Style{Plain, r.style, Dim}
		if first+i == s.cursor {
			styles = [3]Style{Selected, Selected, Selected}
		}
		line = append(line, Span{text, styles[0]}, Span{fit(shorten(r.name, nameWidth, 2), nameWidth), styles[1]})
		if rightWidth > 0 {
			right := r.right
			if at := strings.IndexByte(right, '%') + 2; at > 1 && at <= len(right) {
				right = right[:at] + shorten(right[at:], rightWidth-1-at, 2)
			}
			line = append(line, Span{fit(" "+right, rightWidth), styles[2]})
		}
		lines = append(lines, line)
	}
	return lines
}

// note is what the heading says of the rows.
func (s *Screen) note() string {
	note := ""
	if s.service != "" {
		note += " of " + s.service
	}
	if s.search != "" {
		note += " with " + s.search
	}
	if s.view == viewChanges {
		if _, ago := s.model.diff(s.selection()); ago > 0 {
			note += fmt.Sprintf(", before: %v ago", ago.Round(time.Second))
		}
	}
	return note
}

// why says why a table has no rows.
func (s *Screen) why() string {
	in := s.view.content()
	switch {
	case s.search != "":
		return "nothing matches " + s.search + "; Esc ends the search"
	case len(s.model.cpu) == 0:
		return "waiting for the first samples"
	case in.events && s.states[in.kind] != "":
		return s.states[in.kind]
	case s.stopped != "":
		return s.stopped
	case in.events:
		return "nothing recorded in the last " + spanName(spans[s.span])
	case s.view == viewChanges:
		return "no older data to compare with yet: wait some seconds, or press - for a shorter time"
	}
	return "no CPU time was used"
}

// callersBody is the tree of callers.
func (s *Screen) callersBody(width, height int) []Line {
	const least = 0.01 // share of the method: smaller branches are noise
	list := s.model.callers(s.below.content(), s.selection(), s.of, least)
	heading := fmt.Sprintf("%6s  callers of %s", "share", shorten(s.of.name, width-20, 2))
	lines := []Line{{{fit(heading, width), Bar}}}
	s.rows, s.visible = len(list), height-1
	if len(list) == 0 {
		return append(lines, Line{{fit("  it was not sampled in the last "+spanName(spans[s.span]), width), Dim}})
	}
	s.cursor = min(s.cursor, len(list)-1)
	first := max(min(s.cursor-s.visible/2, len(list)-s.visible), 0)
	for i, r := range list[first:min(first+max(s.visible, 0), len(list))] {
		indent := strings.Repeat(" ", min(r.indent, width/3))
		text := fmt.Sprintf("%6s  %s", percent(r.share), indent)
		style := codeStyle(r.method.code)
		if first+i == s.cursor {
			style = Selected
		}
		lines = append(lines, Line{{fit(text+shorten(r.method.name, width-len(text), 2), width), style}})
	}
	return lines
}

// footer is the last line: a prompt, a message or the most important keys.
func (s *Screen) footer(width int) Line {
	switch {
	case s.prompt == '/':
		return Line{{fitLeft("search: "+s.input+"_", width), Bar}}
	case s.prompt == 'w':
		return Line{{fitLeft("write to: "+s.input+"_  Enter writes, Esc does not", width), Bar}}
	case s.message != "":
		return Line{{fit(s.message, width), Bar}}
	case width < narrow:
		return Line{{fit("q quit  ? help  t a l o d c / w", width), Bar}}
	}
	return Line{{fit("q quit  t threads  a alloc  l lock  o off-CPU  d diff  / search  w write  ? help", width), Bar}}
}

// help is the page of keys.
func (s *Screen) help(width int) []Line {
	var lines []Line
	for _, text := range []string{
		"",
		"  m  methods by CPU time            t  thread groups",
		"  a  allocations, by bytes          l  waits for locks, by delay",
		"  o  off-CPU time, by cause         w  write what is shown to a file",
		"  d  difference to the oldest 30 s of the last five minutes",
		"  c, Enter  callers of the row      Esc  back",
		"  /  search                         space, p  pause and go on",
		"  s, +, -  the last 2 s to 5 min",
		"  Tab, Shift-Tab  service           arrows, j, k, PgUp, PgDn, Home  row",
		"  q, Ctrl-C  quit",
		"",
		"  The interval contains the true share with 95 % confidence.",
		"  CPUs: busy CPUs. Java (or Python), JIT, GC, kern, nat: % of that. pause: %",
		"  of the time in safepoint pauses. alloc, lock and runq are known while their",
		"  view is open, as recording them costs up to 1 % of the CPU time. runq: how",
		"  long threads wait for a CPU, all together; 1 s per second is one thread.",
		"  diff: CPU time in % of one CPU; dim rows differ by less than the interval.",
		fmt.Sprintf("  top itself takes %.1f%% of a CPU.", 100*s.own),
	} {
		lines = append(lines, Line{{fit(text, width), Plain}})
	}
	return lines
}

// fit makes a text exactly so many columns wide: it cuts it, or adds spaces.
func fit(s string, width int) string {
	if width <= 0 {
		return ""
	}
	have := uniseg.StringWidth(s)
	if have > width {
		s, have = cut(s, width-1)
		s, have = s+"…", have+1
	}
	return s + strings.Repeat(" ", width-have)
}

// fitLeft is fit that cuts at the left.
func fitLeft(s string, width int) string {
	runes := []rune(s)
	for len(runes) > 0 && uniseg.StringWidth(string(runes)) > width {
		runes = runes[1:]
	}
	return fit(string(runes), width)
}

// cut returns the longest prefix of at most so many columns, and how many it has.
func cut(s string, width int) (string, int) {
	columns, at := 0, 0
	for state, rest := -1, s; rest != ""; {
		var cluster string
		var w int
		cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if columns+w > width {
			break
		}
		columns += w
		at += len(cluster)
	}
	return s[:at], columns
}

// shorten shortens the name of a Java method or class to so many columns if it can, as
// stored.Abbreviate does.
func shorten(name string, width, last int) string {
	return stored.Abbreviate(name, uniseg.StringWidth(name)-width, last)
}
