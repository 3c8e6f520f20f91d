package events

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

const (
	// maxBuckets is how many buckets of powers of two 64 bits can have, of either sign and with
	// zero. More values are texts that look like numbers.
	maxBuckets = 2*64 + 1
	// barWidth is how long the bar of the largest value is, in columns.
	barWidth = 20
)

// Values writes what the operands of probes were. For each probe, the one with most executions
// first, it shows the distribution of its values: of numbers in buckets in their order, of texts
// the most frequent ones; then the methods, which are the program's innermost. Nil options are
// layout.DefaultOptions. It fails if the profile has no values.
func Values(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
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
		probe, value := stacks.Label(sample, stored.LabelProbe), stacks.Label(sample, stored.LabelValue)
		if probe == "" {
			probe = stored.Unnamed
		}
		if value == "" {
			value = stored.Unnamed
		}
		if of[probe] == nil {
			of[probe] = new(distribution)
		}
		probes.get(probe).add(t)
		of[probe].values.get(value).add(t)
		of[probe].methods.get(e.site(sample)).add(t)
	}
	out, all := bufio.NewWriter(w), probes.total()
	layout.Fold(out, fmt.Sprintf("Values%s: %s (%s) values of %s, from %s", stacks.Elapsed(p),
		layout.Quantity(all.values[0]), e.about(all),
		stored.Plural(len(probes.list), "probe"), layout.ManyOf(layout.Quantity(all.events), "events")), opts.Width)
	e.writeObserved(out, opts)
	shown, rest := layout.First(opts.N, probes.sorted(0))
	for _, probe := range shown {
		fmt.Fprintf(out, "\n%s\n", layout.Shorten(probe.key, opts.Width))
		layout.Fold(out, layout.ManyOf(layout.Quantity(probe.values[0]), "executions")+mean(probe.tally), opts.Width)
		writeHistogram(out, &of[probe.key].values, probe.tally, opts)
		table := eventTable{opts: opts, out: out, order: []int{0}, columns: []eventColumn{
			shareColumn(0, probe.tally), valueColumn("executions", 0, layout.Quantity), eventsColumn,
		}}
		writeEvents(&table, "method", &of[probe.key].methods)
	}
	if len(rest) > 0 {
		fmt.Fprintf(out, "\n%s with %s executions\n", stored.Plural(len(rest), "more probe"),
			layout.Quantity(sumOf(rest).values[0]))
	}
	return layout.Flush(out, "values")
}

// mean says what the values were on average, unless they are texts, which have no sum.
func mean(t tally) string {
	if t.values[0] == 0 || t.values[1] == 0 {
		return ""
	}
	return ", mean " + strconv.FormatFloat(t.values[1]/t.values[0], 'g', 6, 64)
}

// writeHistogram writes how often each value was there, with bars.
func writeHistogram(out *bufio.Writer, values *eventGroups[string], all tally, opts *layout.Options) {
	list, numbers := inOrder(values)
	rest := []*eventGroup[string](nil)
	if !numbers {
		list, rest = layout.First(opts.N, list)
	}
	most := 0.0
	for _, v := range list {
		most = max(most, v.values[0])
	}
	g := layout.Grid{Head: []layout.Row{{Cells: []string{"share", "executions", "events"},
		Name: layout.Heading("value")}}}
	if numbers {
		g.Head[0].Cells = append(g.Head[0].Cells, "value")
		g.Head[0].Name = nil
	}
	for _, v := range list {
		row := layout.Row{Cells: []string{stored.Percent(v.values[0], all.values[0]), layout.Quantity(v.values[0]),
			layout.Quantity(v.events)}}
		if numbers {
			row.Cells = append(row.Cells, v.key)
			row.Name = layout.Heading(bar(v.values[0], most))
		} else {
			row.Name = func(width int) string { return layout.KeepStart(v.key, width) }
		}
		g.Rows = append(g.Rows, row)
	}
	if len(rest) > 0 {
		sum := sumOf(rest)
		g.Rows = append(g.Rows, layout.Row{Cells: []string{stored.Percent(sum.values[0], all.values[0]),
			layout.Quantity(sum.values[0]), layout.Quantity(sum.events)},
			Name: layout.Heading(fmt.Sprintf("%d more", len(rest)))})
	}
	g.Write(out, opts.Width)
}

// inOrder returns values as they are to be shown: numbers in their order, if all are, or else the
// most frequent first.
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
