package sink

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

const (
	// maxBuckets is how many buckets of powers of two 64 bits can have, of either sign and with zero. More values are
	// texts that look like numbers.
	maxBuckets = 2*64 + 1
	// barWidth is how long the bar of the largest value is, in columns.
	barWidth = 20
)

// Values writes what the operands of probes were. For each probe, the one with most executions first, it shows the
// distribution of its values: of numbers in buckets in their order, of texts the most frequent ones; then the methods,
// which are the guest's innermost. Nil options are DefaultViewOptions. It fails if the profile has no values.
func Values(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	e, err := readEvents(p, profile.Values)
	if err != nil {
		return err
	}
	type distribution struct{ values, methods eventGroups[string] }
	var (
		probes eventGroups[string]
		of     = make(map[string]*distribution)
	)
	for sample, t := range e.all() {
		probe, value := label(sample, labelProbe), label(sample, labelValue)
		if probe == "" {
			probe = unnamed
		}
		if value == "" {
			value = unnamed
		}
		if of[probe] == nil {
			of[probe] = new(distribution)
		}
		probes.of(probe).add(t)
		of[probe].values.of(value).add(t)
		of[probe].methods.of(e.site(sample)).add(t)
	}
	out, all := bufio.NewWriter(w), probes.total()
	writeFolded(out, fmt.Sprintf("Values%s: %s (%s) values of %s, from %s events", elapsed(p), quantity(all.values[0]), e.about(all),
		plural(len(probes.list), "probe"), quantity(all.events)), opts.Width)
	e.writeObserved(out, opts)
	shown, rest := first(opts.N, probes.sorted(0))
	for _, probe := range shown {
		fmt.Fprintf(out, "\n%s\n", shorten(probe.key, opts.Width))
		writeFolded(out, fmt.Sprintf("%s executions%s", quantity(probe.values[0]), mean(probe.tally)), opts.Width)
		writeHistogram(out, &of[probe.key].values, probe.tally, opts)
		table := eventTable{opts: opts, out: out, order: []int{0}, columns: []eventColumn{
			shareColumn(0, probe.tally), valueColumn("executions", 0, quantity), eventsColumn,
		}}
		writeEvents(&table, "method", &of[probe.key].methods)
	}
	if len(rest) > 0 {
		fmt.Fprintf(out, "\n%s with %s executions\n", plural(len(rest), "more probe"), quantity(sumOf(rest).values[0]))
	}
	return flush(out, "values")
}

// mean says what the values were on average, unless they are texts, which have no sum.
func mean(t tally) string {
	if t.values[0] == 0 || t.values[1] == 0 {
		return ""
	}
	return ", mean " + strconv.FormatFloat(t.values[1]/t.values[0], 'g', 6, 64)
}

// writeHistogram writes how often each value was there, with bars.
func writeHistogram(out *bufio.Writer, values *eventGroups[string], all tally, opts *ViewOptions) {
	list, numbers := inOrder(values)
	rest := []*eventGroup[string](nil)
	if !numbers {
		list, rest = first(opts.N, list)
	}
	most := 0.0
	for _, v := range list {
		most = max(most, v.values[0])
	}
	g := grid{head: []gridRow{{cells: []string{"share", "executions", "events"}, name: heading("value")}}}
	if numbers {
		g.head[0].cells = append(g.head[0].cells, "value")
		g.head[0].name = nil
	}
	for _, v := range list {
		row := gridRow{cells: []string{percent(v.values[0], all.values[0]), quantity(v.values[0]), quantity(v.events)}}
		if numbers {
			row.cells = append(row.cells, v.key)
			row.name = heading(bar(v.values[0], most))
		} else {
			row.name = func(width int) string { return shortenText(v.key, width) }
		}
		g.rows = append(g.rows, row)
	}
	if len(rest) > 0 {
		sum := sumOf(rest)
		g.rows = append(g.rows, gridRow{[]string{percent(sum.values[0], all.values[0]), quantity(sum.values[0]), quantity(sum.events)},
			heading(fmt.Sprintf("%d more", len(rest)))})
	}
	g.write(out, opts.Width)
}

// inOrder returns values as they are to be shown: numbers in their order, if all are, or else the most frequent first.
func inOrder(values *eventGroups[string]) (list []*eventGroup[string], numbers bool) {
	list = values.sorted(0)
	if len(list) > maxBuckets {
		return list, false
	}
	lower := make(map[string]float64, len(list))
	for _, v := range list {
		from, ok := lowerBound(v.key)
		if !ok {
			return list, false
		}
		lower[v.key] = from
	}
	slices.SortStableFunc(list, func(a, b *eventGroup[string]) int { return cmp.Compare(lower[a.key], lower[b.key]) })
	return list, true
}

var bucketPattern = regexp.MustCompile(`^(-?[0-9]{1,20})(?:-(-?[0-9]{1,20}))?$`)

// lowerBound reads where a bucket begins: 16 of 16-31, -31 of -31--16, and 7 of 7.
func lowerBound(bucket string) (from float64, ok bool) {
	m := bucketPattern.FindStringSubmatch(bucket)
	if m == nil {
		return 0, false
	}
	from, err := strconv.ParseFloat(m[1], 64)
	return from, err == nil
}

// bar is as long as value is a part of most; what is there at all has one.
func bar(value, most float64) string {
	if value <= 0 || most <= 0 {
		return ""
	}
	return strings.Repeat("#", max(1, int(barWidth*value/most)))
}

// shortenText makes a text at most width runes long, 0 for any length, by cutting its end.
func shortenText(text string, width int) string {
	runes := []rune(text)
	if width <= 0 || len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}
