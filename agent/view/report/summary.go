package report

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// SummaryOptions says how a Summary is shown. Zero fields have the defaults named below.
type SummaryOptions struct {
	CPUs  int      // number of CPUs of the machine, for the first line; by default not said
	Width int      // columns: 80
	Lines int      // at most: 24
	Color bool     // with escape sequences for a terminal
	Next  []string // lines at the end: where the recording is, and what to do next
	// Stopped says that the processes were stopped by a signal or a debugger when the recording
	// ended.
	Stopped bool
}

const (
	summaryRows = 10 // methods in a summary of one file
	summaryApp  = 3  // methods of the application in it, by their time with callees
	// leastRows is how many rows each kind has, if there are so many, even if that takes more lines
	// than there are.
	leastRows = 5
)

// Summary writes the end of a recording: what was recorded, the hottest methods, one line that says
// how good the recording is, and what to do next. It has at most SummaryOptions.Lines lines, which
// the files of a recording share, unless five rows of each need more.
func Summary(w io.Writer, files []*pprof.Profile, opts *SummaryOptions) error {
	var o SummaryOptions
	if opts != nil {
		o = *opts
	}
	o.Width, o.Lines = cmp.Or(o.Width, 80), cmp.Or(o.Lines, 24)
	out := bufio.NewWriter(w)
	who, err := o.holder(files)
	if err != nil {
		return err
	}
	lines, shown := o.Lines-len(o.Next)-strings.Count(who, "\n"), 0
	statuses := make([]string, len(files))
	for i, p := range files {
		statuses[i] = o.status(p)
		// An empty line stands before the status or before the next file.
		if lines -= strings.Count(statuses[i], "\n") + 1; empty(p) {
			lines--
		} else {
			shown++
		}
	}
	room := max(lines/max(shown, 1), 1)
	for i, p := range files {
		if len(files) > 1 && i > 0 {
			out.WriteByte('\n')
		}
		if err := o.views(out, p, room, shown > 1); err != nil {
			return err
		}
		if len(files) == 1 {
			out.WriteByte('\n')
		}
		out.WriteString(statuses[i])
	}
	out.WriteString(who)
	for _, line := range o.Next {
		out.WriteString(o.paint(dim, line) + "\n")
	}
	return layout.Flush(out, "summary")
}

// holder is a paragraph on who was seen to have the lock that threads waited for most; "" if nobody
// was.
func (o *SummaryOptions) holder(files []*pprof.Profile) (string, error) {
	at := slices.IndexFunc(files, func(p *pprof.Profile) bool {
		kind, ofEvents := stacks.EventKindOf(p)
		return ofEvents && kind == profile.Locks && !empty(p)
	})
	if at < 0 {
		return "", nil
	}
	text, err := events.Holder(files[at])
	if err != nil || text == "" {
		return "", err
	}
	var b strings.Builder
	out := bufio.NewWriter(&b)
	layout.Fold(out, text, o.Width)
	if err := layout.Flush(out, "summary"); err != nil {
		return "", err
	}
	return "\n" + b.String() + "\n", nil
}

// views writes the views of a file in at most so many lines, or more if there are several kinds.
func (o *SummaryOptions) views(w io.Writer, p *pprof.Profile, lines int, several bool) error {
	if stacks.HasTime(p) && !stacks.HasCalls(p) {
		return o.time(w, p, lines)
	}
	view := events.View(p)
	if kind, ok := stacks.EventKindOf(p); ok && empty(p) {
		_, err := fmt.Fprintln(w, noEvents(p, kind))
		return err
	}
	if view == nil {
		view = edgesOrNone
	}
	if stacks.HasTime(p) { // Such a profile may have calls, too.
		half := lines / 2
		if err := o.time(w, p, half); err != nil {
			return err
		}
		lines -= half
		several = true
	}
	return o.fit(w, view, p, lines, several)
}

// noEvents is the sentence of a profile without events: there were none, or it is not known, or
// nothing of them was observed.
func noEvents(p *pprof.Profile, kind profile.EventKind) string {
	m, err := stored.MetadataOf(p)
	if err != nil || len(m.Extents) == 0 {
		return fmt.Sprintf("No %v events were recorded; whether there were any is unknown.", kind)
	}
	for _, e := range m.ExtentsTogether() {
		if e.There > 0 || e.Unknown() {
			return fmt.Sprintf("No %v events were recorded.", kind)
		}
	}
	return fmt.Sprintf("No %v events were observed: there were none.", kind)
}

// empty reports whether nothing was recorded.
func empty(p *pprof.Profile) bool { return len(p.Sample) == 0 }

// fit writes a view with as many rows as fit into so many lines. Where that would leave few rows,
// they have no parts: the largest rows say more than the parts of fewer ones.
func (o *SummaryOptions) fit(
	w io.Writer, view func(io.Writer, *pprof.Profile, *layout.Options) error, p *pprof.Profile, lines int, several bool,
) error {
	opts := layout.DefaultOptions()
	opts.Width = o.Width
	var all []string
	least := 1
	if several {
		least = leastRows
	}
	for _, shape := range summaryShapes(least) {
		opts.N, opts.Parts = shape.rows, shape.parts
		var text bytes.Buffer
		if err := view(&text, p, opts); err != nil {
			return err
		}
		if all = slices.Collect(strings.Lines(text.String())); len(all) <= lines {
			break
		}
	}
	for _, line := range wholeTables(all, max(lines, firstRows(all, least))) {
		if _, err := io.WriteString(w, line); err != nil {
			return fmt.Errorf("write summary: %w", err)
		}
	}
	return nil
}

// A summaryShape is how many rows tables have, and how many parts these have, as in layout.Options.
type summaryShape struct{ rows, parts int }

// summaryShapes are those to try, the best first. All have at least so many rows.
func summaryShapes(least int) (shapes []summaryShape) {
	for rows := summaryRows; rows >= leastRows; rows-- {
		for _, parts := range []int{layout.MaxParts, 2, 1} {
			shapes = append(shapes, summaryShape{rows, parts})
		}
	}
	for rows := summaryRows; rows >= least; rows-- {
		shapes = append(shapes, summaryShape{rows, -1})
	}
	return shapes
}

// tableRow begins a row of a table: with a share.
var tableRow = regexp.MustCompile(`^ *[0-9.]+% `)

// firstRows is how many lines there are up to the n-th row of a table, or to the last one.
func firstRows(lines []string, n int) (upTo int) {
	for i, line := range lines {
		if tableRow.MatchString(line) {
			if upTo = i + 1; n == 1 {
				break
			}
			n--
		}
	}
	return upTo
}

// wholeTables cuts lines, but leaves no heading of a table without a row.
func wholeTables(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	lines = lines[:most]
	for back := range min(2, most) { // an empty line, or one and a heading
		if at := most - 1 - back; lines[at] == "\n" && at > 0 {
			return lines[:at]
		}
	}
	return lines
}

// edgesOrNone shows the hottest edges, or says that there are none; the notes say why.
func edgesOrNone(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	if !stacks.HoldsCalls(p) {
		_, err := fmt.Fprintln(w, "No calls were observed.")
		return err
	}
	return Edges(w, p, opts)
}

// time writes the headline and the hottest methods of CPU time, in about so many lines.
func (o *SummaryOptions) time(w io.Writer, p *pprof.Profile, lines int) error {
	out := bufio.NewWriter(w)
	var head bytes.Buffer
	folding, who := bufio.NewWriter(&head), subject(p)
	layout.Fold(folding, o.headline(p, who), o.Width)
	if err := folding.Flush(); err != nil {
		return err
	}
	out.WriteString(strings.Replace(head.String(), who, o.paint(bold, who), 1)) // escape sequences take no columns
	v, err := newView(p, summed|byTime)
	if err != nil {
		return err
	}
	// One of them is that of the other methods.
	const least = leastRows + 1
	rows := min(lines-bytes.Count(head.Bytes(), []byte("\n"))-1, summaryRows+2+summaryApp+1) // below the heading
	if v.tree.Total() == 0 {
		return layout.Flush(out, "summary")
	}
	if rows > least {
		out.WriteByte('\n')
		rows--
	}
	rows = max(rows, least)
	all := cct.Hot(&v.tree, func(name string) string { return name })
	cct.SortEntries(all, strings.Compare)
	entries := slices.DeleteFunc(slices.Clone(all), func(e cct.Entry[string]) bool { return e.Self == 0 })
	shown, rest := layout.First(summaryLines(rows, len(entries)), entries)
	// Of few lines the hottest methods are more, and what they have anyway is not repeated.
	app := v.withCallees(all, min(summaryApp, (rows-1)/4))
	if rows-len(app)-1 < min(least, len(entries)) || !slices.ContainsFunc(app,
		func(e cct.Entry[string]) bool { return !slices.Contains(shown, e) }) {
		app = nil
	} else {
		rows -= len(app) + 1
		shown, rest = layout.First(summaryLines(rows, len(entries)), entries)
	}
	fmt.Fprintf(out, "%s\n", o.paint(dim, fmt.Sprintf("%6s %6s  %-*s  %s", "self", "total", kindWidth, "kind",
		"method")))
	o.writeRows(out, v, shown)
	if len(rest) > 0 && rows > 1 {
		var self uint64
		for _, e := range rest {
			self += e.Self
		}
		fmt.Fprintf(out, "%5.1f%% %s %s\n", v.share(self), strings.Repeat(" ", 8+kindWidth),
			stored.Plural(len(rest), "more method"))
	}
	if len(app) > 0 {
		fmt.Fprintf(out, "%s\n", o.paint(dim, "the application's methods with the most time in total (with callees):"))
		o.writeRows(out, v, app)
	}
	return layout.Flush(out, "summary")
}

// summaryLines is how many of so many methods have a line of their own, if there are so many rows.
// The others share one.
func summaryLines(rows, methods int) int {
	if rows < methods && rows > 1 {
		rows--
	}
	return min(rows, summaryRows)
}

// writeRows writes methods, a line each.
func (o *SummaryOptions) writeRows(out *bufio.Writer, v *view, entries []cct.Entry[string]) {
	for _, e := range entries {
		kind := v.kinds[e.Key]
		line := fmt.Sprintf("%5.1f%% %5.1f%%  ", v.share(e.Self), v.share(e.Total))
		name := layout.Shorten(e.Key, layout.Room(o.Width, len(line)+kindWidth+2))
		fmt.Fprintf(out, "%s%s  %s\n", line, o.paint(kindColors[kind], fmt.Sprintf("%-*s", kindWidth, kind)), name)
	}
}

// kindWidth is that of the longest kind of work.
const kindWidth = len(stacks.Compiled)

// headline says what was recorded: who used how much CPU time, and for what.
func (o *SummaryOptions) headline(p *pprof.Profile, who string) string {
	cpu, wall := time.Duration(stacks.Sum(p, "cpu", nil)), time.Duration(p.DurationNanos)
	length := ""
	if wall > 0 {
		length = " for " + threeDigits(wall)
	}
	if cpu == 0 && o.Stopped {
		return fmt.Sprintf("%s are stopped%s", who, strings.Replace(length, " for ", "; the recording took ", 1))
	}
	if cpu == 0 {
		return fmt.Sprintf("%s used no CPU time%s", who, strings.Replace(length, " for ", " in ", 1))
	}
	text := who + ": "
	switch {
	case wall > 0 && o.CPUs > 0:
		text += fmt.Sprintf("%.2f of %s%s", cpu.Seconds()/wall.Seconds(), stored.Plural(o.CPUs, "CPU"), length)
	default:
		text += threeDigits(cpu) + " of CPU time" + strings.Replace(length, " for ", " in ", 1)
	}
	s, err := stacks.NewSamples(p, "cpu")
	if err != nil {
		return text
	}
	byWork, total := make(map[string]float64), 0.0
	for sample, value := range s.All() {
		byWork[s.Work(sample)] += float64(value)
		total += float64(value)
	}
	var shares []string
	for _, work := range stacks.Works {
		if share := 100 * byWork[work] / total; share >= 0.5 {
			shares = append(shares, fmt.Sprintf("%s %.0f%%", work, share))
		}
	}
	if len(shares) == 0 {
		return text
	}
	return text + ": " + strings.Join(shares, ", ")
}

// threeDigits writes a duration in three digits.
func threeDigits(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s >= 99.95:
		return fmt.Sprintf("%.0f s", s)
	case s >= 9.995:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.2f s", s)
}

// subject is whose time a profile has.
func subject(p *pprof.Profile) string {
	type process struct {
		name string
		pid  int64
	}
	processes, names := make(map[process]bool), make(map[string]bool)
	for _, sample := range p.Sample {
		name := cmp.Or(strings.TrimSuffix(stacks.Label(sample, stored.LabelService), ".service"),
			stacks.Label(sample, stored.LabelComm), stored.Unnamed)
		processes[process{name, stacks.ProcessID(sample)}] = true
		names[name] = true
	}
	switch {
	case len(processes) == 0:
		return "The selected processes"
	case len(processes) == 1:
		for of := range processes {
			return fmt.Sprintf("%s (%d)", of.name, of.pid)
		}
	case len(names) == 1:
		for name := range names {
			return fmt.Sprintf("%s (%d processes)", name, len(processes))
		}
	}
	return stored.Plural(len(processes), "process")
}

// A color is the number of a select graphic rendition (ECMA-48).
type color string

const (
	bold    color = "1"
	dim     color = "2"
	red     color = "31"
	green   color = "32"
	yellow  color = "33"
	blue    color = "34"
	magenta color = "35"
	cyan    color = "36"
)

var kindColors = map[string]color{
	profile.GuestCode.String(): green, stacks.Python: green, stacks.Compiled: green,
	profile.Compiling.String():    cyan,
	profile.Collecting.String():   magenta,
	profile.Housekeeping.String(): blue, profile.NativeCode.String(): yellow, profile.KernelCode.String(): red,
}

func (o *SummaryOptions) paint(c color, text string) string {
	if !o.Color || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
