package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A Style is how a line looks.
type Style uint8

const (
	Plain    Style = iota
	Strong         // a heading
	Selected       // what keys act on
	Faint          // what is there to be looked up
	Warning
)

// A Line is one line of the screen.
type Line struct {
	Text  string
	Style Style
}

// A Table is what the lower part of the screen shows.
type Table uint8

const (
	Methods Table = iota
	Threads
	Callers // of the selected method
	Allocations
	Locks
	Help
)

// spans are the times that a table may sum up.
var spans = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute}

// A View is what of a Model is shown. The zero value shows the methods of the busiest service in the last ten seconds.
type View struct {
	Table    Table
	Service  string // selected; "": the busiest
	Search   string // only rows that contain it, whatever their case
	Typing   bool   // Search is being typed
	Method   string // whose callers are shown
	Diff     bool   // against five minutes ago
	Paused   bool
	Status   string // of the last key: where a file was written, what failed
	Recorded [profile.EventKinds]bool

	chosen bool // the user selected a service

	span  int // index of spans
	row   int // selected
	keys  []string
	names []string // of services, as they were shown
}

// Span is how much time a table sums up.
func (v *View) Span() time.Duration { return spans[v.span] }

// Kind is the kind of events that the table needs; false if it needs none.
func (v *View) Kind() (profile.EventKind, bool) {
	switch v.Table {
	case Allocations:
		return profile.Allocations, true
	case Locks:
		return profile.Locks, true
	}
	return 0, false
}

// Key is a key without a letter.
type Key uint8

const (
	Up Key = iota
	Down
	Left
	Right
	Enter
	Escape
	Backspace
)

// Press acts on a key.
func (v *View) Press(k Key) {
	v.Status = ""
	switch k {
	case Up:
		v.row = max(v.row-1, 0)
	case Down:
		v.row++
		v.chosen = v.Service != ""
	case Left, Right:
		v.other(k == Right)
	case Enter:
		if v.Typing {
			v.Typing = false
			return
		}
		v.open()
	case Escape:
		v.Typing, v.Search = false, ""
		if v.Table == Callers || v.Table == Help {
			v.Table = Methods
		}
	case Backspace:
		if runes := []rune(v.Search); v.Typing && len(runes) > 0 {
			v.Search = string(runes[:len(runes)-1])
		}
	}
}

// other selects the next service or the one before.
func (v *View) other(next bool) {
	if len(v.names) == 0 {
		return
	}
	at := max(slices.Index(v.names, v.Service), 0)
	if next {
		at++
	} else {
		at--
	}
	v.Service, v.row, v.chosen = v.names[(at+len(v.names))%len(v.names)], 0, true
}

// open shows the callers of the selected method.
func (v *View) open() {
	if (v.Table == Methods || v.Table == Callers) && v.row < len(v.keys) {
		v.Method, v.Table, v.row = v.keys[v.row], Callers, 0
	}
}

const maxSearch = 64

// Type acts on a letter; false if it has no meaning here.
func (v *View) Type(r rune) bool {
	v.Status = ""
	if v.Typing {
		if len(v.Search) < maxSearch {
			v.Search += string(r)
		}
		return true
	}
	tables := map[rune]Table{'m': Methods, 't': Threads, 'a': Allocations, 'l': Locks, '?': Help, 'h': Help}
	switch table, ok := tables[r]; {
	case ok && v.Table == Help && table == Help:
		v.Table = Methods
	case ok:
		v.Table, v.row = table, 0
	case r == 'c':
		v.open()
	case r == '/':
		v.Typing, v.Search = true, ""
	case r == 'd':
		v.Diff = !v.Diff
	case r == 's':
		v.span = (v.span + 1) % len(spans)
	case r == 'p' || r == ' ':
		v.Paused = !v.Paused
	default:
		return false
	}
	return true
}

var help = []string{
	"up, down      select a row                left, right   select a service",
	"m             methods                     t             threads, by group",
	"c, enter      callers of the method       escape        back; end the search",
	"a             allocations, by class       l             waits for locks",
	"/             search                      s             last 10 s, 60 s or 5 min",
	"d             against five minutes ago    p, space      pause",
	"w             write a profile (pprof)     q             quit",
	"",
	"± is the 95 % interval of a share, of samples that do not depend on each other.",
	"Allocations and waits are recorded from when they are first looked at.",
}

const (
	mostServices = 6  // lines of them
	loads        = 30 // windows of a sparkline: a minute
)

// Lines are height lines, each of which fits into width columns.
func (v *View) Lines(m *Model, width, height int) []Line {
	lines := make([]Line, 0, height)
	now := m.sum(v.Span(), 0)
	v.names = now.names()
	if len(v.names) > 0 && (!v.chosen || !slices.Contains(v.names, v.Service)) {
		v.Service, v.chosen = v.names[0], false
	}
	add := func(style Style, text string) {
		if len(lines) < height {
			lines = append(lines, Line{fit(text, width), style})
		}
	}
	add(Strong, v.title(m, now))
	if now.length == 0 {
		add(Plain, "waiting for the first samples …")
	}
	from, to := v.shown(min(mostServices, max(height/4, 1)))
	for _, name := range v.names[from:to] {
		style := Plain
		if name == v.Service {
			style = Selected
		}
		add(style, serviceLine(m, now, name, width))
	}
	if more := len(v.names) - (to - from); more > 0 {
		add(Faint, fmt.Sprintf("  %d more: left, right", more))
	}
	if s := now.services[v.Service]; s != nil {
		add(Plain, detail(s, now, width))
	}
	if v.Table == Help {
		add(Plain, "")
		for _, text := range help {
			add(Plain, text)
		}
	} else {
		v.table(m, now, width, height-len(lines)-2, add)
	}
	for len(lines) < height-1 {
		lines = append(lines, Line{})
	}
	lines = lines[:max(height-1, 0)]
	add(Faint, v.bottom())
	return lines
}

func (v *View) title(m *Model, now *span) string {
	var cpu time.Duration
	for _, s := range now.services {
		cpu += s.cpu()
	}
	text := fmt.Sprintf("vmprof-agent top   %s of %d CPUs in %s", cpus(cpu, now.length), m.cpus, seconds(now.length))
	if v.Paused {
		text += "   paused"
	}
	return text
}

func (v *View) bottom() string {
	switch {
	case v.Typing:
		return "search: " + v.Search + "_"
	case v.Status != "":
		return v.Status
	}
	return "q quit  ? help  m methods  t threads  c callers  a alloc  l locks  / search"
}

// shown is which services have a line, so that the selected one has.
func (v *View) shown(n int) (from, to int) {
	at := max(slices.Index(v.names, v.Service), 0)
	from = max(at-n+1, 0)
	return from, min(from+n, len(v.names))
}

func serviceLine(m *Model, now *span, name string, width int) string {
	s := now.services[name]
	text := fmt.Sprintf("%5s CPUs ", cpus(s.cpu(), now.length))
	const roomForSpark = 70
	if width >= roomForSpark {
		text += spark(m.load(name, loads)) + " "
	}
	pids := ""
	if len(s.pids) > 1 {
		pids = fmt.Sprintf(" (%d processes)", len(s.pids))
	}
	for pid := range s.pids {
		if len(s.pids) == 1 {
			pids = fmt.Sprintf(" (%d)", pid)
		}
	}
	return text + shorten(symbolize.Printable(name, 200), width-columns(text)-columns(pids)) + pids
}

// detail is where the time of a service goes.
func detail(s *service, now *span, width int) string {
	var parts []string
	all := s.samples()
	for kind, n := range s.code {
		if share := float64(n) / all; n > 0 {
			parts = append(parts, fmt.Sprintf("%v %.0f%%", profile.CodeKind(kind), 100*share))
		}
	}
	text := "      " + strings.Join(parts, "  ")
	for _, kind := range []profile.EventKind{profile.Allocations, profile.Locks} {
		if now.recorded[kind] > 0 {
			text += "   " + kind.String() + " " + rate(kind, s.values[kind], now)
		}
	}
	return fit(text, width)
}

// rate is a value of a kind of events per second.
func rate(kind profile.EventKind, value float64, now *span) string {
	each := value / now.recorded[kind].Seconds()
	if kind == profile.Allocations {
		return size(each) + "/s"
	}
	return fmt.Sprintf("%.3g ms/s", each/1e6)
}

// A tableRow is a line of a table.
type tableRow struct {
	key           string
	self, total   float64 // parts of the table's sum
	rate          string  // of events
	within        float64 // percentage points
	change, error float64 // of self against before, percentage points
	caller        string
}

// rows are those of the table, the heaviest first, and how much they stand for in all.
func (v *View) rows(m *Model, now *span) (rows []tableRow, sum float64) {
	s := now.services[v.Service]
	if s == nil {
		return nil, 0
	}
	from, sum, observed := v.of(s)
	var before map[string]*row
	var beforeSum, beforeObserved float64
	if v.Diff {
		const ago = 5 * time.Minute
		past := m.sum(max(v.Span()/5, time.Minute), ago)
		if old := past.services[v.Service]; old != nil {
			before, beforeSum, beforeObserved = v.of(old)
		}
	}
	for key, r := range from {
		share := r.self / sum
		line := tableRow{key: key, self: share, total: r.total / sum, within: within(min(share, 1), observed), caller: r.busiest(), change: math.NaN()}
		if beforeSum > 0 {
			old := 0.0
			if b := before[key]; b != nil {
				old = b.self / beforeSum
			}
			line.change = 100 * (share - old)
			line.error = math.Hypot(line.within, within(min(old, 1), beforeObserved))
		}
		if kind, events := v.Kind(); events && now.recorded[kind] > 0 {
			line.rate = rate(kind, r.self, now)
		}
		if v.Search != "" && !strings.Contains(strings.ToLower(key), strings.ToLower(v.Search)) {
			continue
		}
		rows = append(rows, line)
	}
	slices.SortFunc(rows, func(a, b tableRow) int {
		if v.Diff && !math.IsNaN(a.change) {
			if c := cmp.Compare(math.Abs(b.change), math.Abs(a.change)); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(b.self, a.self), cmp.Compare(b.total, a.total), strings.Compare(a.key, b.key))
	})
	return rows, sum
}

// of are the rows of a service that the table shows, their sum and how many observations that is.
func (v *View) of(s *service) (rows map[string]*row, sum, observed float64) {
	switch v.Table {
	case Threads:
		rows = s.threads
	case Allocations, Locks:
		kind, _ := v.Kind()
		rows, sum = s.events[kind], s.values[kind]
	case Callers:
		rows = map[string]*row{}
		if r := s.methods[v.Method]; r != nil {
			for caller, value := range r.callers {
				rows[caller] = &row{self: value, total: value, observed: value}
			}
		}
	default:
		rows = s.methods
	}
	for _, r := range rows {
		observed += r.observed
	}
	if sum == 0 {
		sum = observed
	}
	return rows, sum, observed
}

var headings = [...]string{Methods: "method", Threads: "thread group", Callers: "caller", Allocations: "class", Locks: "class or kind of wait"}

func (v *View) table(m *Model, now *span, width, height int, add func(Style, string)) {
	rows, _ := v.rows(m, now)
	heading := headings[v.Table]
	if v.Table == Callers {
		heading = "caller of " + symbolize.Printable(v.Method, 100)
	}
	if v.Search != "" && !v.Typing {
		heading += ", with " + v.Search
	}
	columns := "  self     ±   total  "
	if v.Diff {
		columns = "  self     ±  change     ±  "
	}
	kind, events := v.Kind()
	switch {
	case events && !v.Diff:
		columns = " share     ±        rate  "
	case v.Table != Methods && !v.Diff:
		columns = " share     ±  "
	}
	add(Strong, columns+heading)
	v.keys = v.keys[:0]
	for i := range rows {
		v.keys = append(v.keys, rows[i].key)
	}
	v.row = max(min(v.row, len(rows)-1), 0)
	switch {
	case len(rows) > 0:
	case events && now.recorded[kind] == 0:
		add(Plain, "  recording begins …")
	case v.Search != "":
		add(Plain, "  nothing matches")
	case now.length > 0:
		add(Plain, "  nothing in this time")
	}
	height = max(height, 1)
	first := max(v.row-height+1, 0)
	for i, r := range rows[first:min(first+height, len(rows))] {
		style := Plain
		if first+i == v.row {
			style = Selected
		}
		add(style, v.line(&r, width))
	}
}

func (v *View) line(r *tableRow, width int) string {
	text := fmt.Sprintf("%5.1f%% %5s ", 100*r.self, points(r.within))
	switch {
	case v.Diff && math.IsNaN(r.change):
		text += "      ?       "
	case v.Diff && math.Abs(r.change) <= r.error:
		text += fmt.Sprintf("     ~  %5s ", points(r.error))
	case v.Diff:
		text += fmt.Sprintf("%+6.1f  %5s ", r.change, points(r.error))
	case r.rate != "":
		text += fmt.Sprintf("%11s ", r.rate)
	case v.Table == Methods:
		text += fmt.Sprintf("%6.1f%% ", 100*r.total)
	}
	text += " "
	name := symbolize.Printable(r.key, 200)
	caller := ""
	room := width - columns(text)
	const roomForBoth = 40
	if r.caller != "" && r.caller != r.key && v.Table != Callers && room >= roomForBoth {
		const mark = "  < "
		caller = symbolize.Printable(r.caller, 200)
		// The method's name is worth more than its caller's.
		caller = mark + shorten(caller, max(room-columns(name)-len(mark), room/3))
	}
	return text + shorten(name, room-columns(caller)) + caller
}

func points(x float64) string {
	if math.IsNaN(x) {
		return "?"
	}
	return fmt.Sprintf("%.1f", x)
}
