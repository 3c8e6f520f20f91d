package stored

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Sentences is the metadata for people. The first sentence is the account of samples or events.
func (m *Metadata) Sentences() []string {
	return slices.Concat([]string{m.Account.String()}, m.sentences(true))
}

// Remaining is the metadata for people without the account, the single windows and the contexts of
// single processes.
func (m *Metadata) Remaining() []string { return m.sentences(false) }

func (m *Metadata) sentences(single bool) (list []string) {
	list = append(list, totalSentences(m.Totals, m.unit())...)
	list = append(list, m.extentSentences()...)
	for i := range m.Basis {
		list = append(list, m.Basis[i].String())
	}
	for _, s := range m.Sampling {
		list = append(list, fmt.Sprintf("event: %s, one sample per %v of CPU time", s.Event, s.Period))
	}
	list = append(list, m.Remarks...)
	if single {
		for i := range m.Windows {
			list = append(list, m.Windows[i].String())
		}
	}
	for i := range m.Calls {
		list = append(list, m.Calls[i].String())
	}
	if single {
		for i := range m.Contexts {
			list = append(list, m.Contexts[i].String())
		}
	}
	for i := range m.Rounding {
		list = append(list, m.Rounding[i].String())
	}
	for i := range m.Notes {
		list = append(list, m.Notes[i].String())
	}
	if m.LeftOut > 0 {
		list = append(list, fmt.Sprintf("%s of single windows omitted", Plural(m.LeftOut, "comment")))
	}
	return list
}

// unit is that of Totals.
func (m *Metadata) unit() string {
	if m.Events == nil {
		return ""
	}
	return MainValue(m.Events.Kind).Unit
}

// Observed are the sentences on processes that were observed part of the time, or not in all
// events.
func (m *Metadata) Observed() (list []string) {
	incomplete := slices.DeleteFunc(slices.Clone(m.Totals), func(t Total) bool { return !t.Incomplete() })
	return totalSentences(incomplete, m.unit())
}

// Repeated is the sentence of Basis by which parts of the sum have no intervals, as what repeats in
// step with what is observed is not told apart: profile.InStep or profile.OneSite; "" if there is
// none.
func (m *Metadata) Repeated() string {
	for _, sentence := range [...]string{profile.InStep, profile.OneSite} {
		if slices.ContainsFunc(m.Basis, func(n Note) bool { return n.Text == sentence }) {
			return sentence
		}
	}
	return ""
}

// maxTotals is how many processes of one name have sentences of their own. Programs that a loop
// starts again and again would have hundreds.
const maxTotals = 5

// totalSentences reports sums by process, or by the name of processes if there are many.
func totalSentences(totals []Total, unit string) (list []string) {
	byName := map[string][]*Total{}
	for i := range totals {
		byName[totals[i].Comm] = append(byName[totals[i].Comm], &totals[i])
	}
	for i := range totals {
		t := &totals[i]
		switch same := byName[t.Comm]; {
		case len(same) <= maxTotals:
			list = append(list, fmt.Sprintf("%s (pid %d): ", t.Comm, t.PID)+t.sentence("its", unit))
		case same[0] == t:
			list = append(list, fmt.Sprintf("%s (%d processes): ", t.Comm, len(same))+
				together(same).sentence("their", unit))
		}
	}
	return list
}

// together adds up the sums of processes. Errors of what was not observed may be those of all: they
// add up as well.
func together(totals []*Total) *Total {
	var sum Total
	whole, part := 0.0, 0.0
	for _, t := range totals {
		sum.Sum += t.Sum
		sum.Time += t.Time
		sum.Observed += t.Observed
		sum.Slices = max(sum.Slices, t.Slices)
		sum.Missed = max(sum.Missed, t.Missed)
		sum.Lost = max(sum.Lost, t.Lost)
		if t.Incomplete() {
			part += float64(t.Within)
		} else {
			whole = math.Hypot(whole, float64(t.Within))
		}
	}
	sum.Within = Bound(math.Hypot(whole, part))
	return &sum
}

// String is the account in one sentence.
func (a *Account) String() string {
	if a.Events != nil {
		return a.Events.String()
	}
	return summary(a.Samples)
}

// summary accounts for samples in one sentence: how many there are, how many were lost and to what,
// and how many stacks end early.
func summary(c profile.Counts) string {
	parts := []string{
		fmt.Sprintf("samples: %d", c.Folded),
		causes("lost", c.Dropped, c.Discarded),
		causes("truncated", c.Truncated),
	}
	if c.Stale > 0 {
		parts = append(parts, fmt.Sprintf("%d stale frames", c.Stale))
	}
	if c.Unknown > 0 {
		parts = append(parts, fmt.Sprintf("%d frames without a name", c.Unknown))
	}
	return strings.Join(parts, ", ")
}

// String accounts for events in one sentence: how many there are, how many were lost and to what,
// and what they cost. Losses and costs are those of all kinds together.
func (a *EventAccount) String() string {
	text := fmt.Sprintf("events: %d %v", a.Observed, a.Kind)
	if a.Mixed {
		text += fmt.Sprintf("; of all kinds together %d", a.Counts.Folded)
	}
	text += ", " + causes("lost", a.Counts.Dropped, a.Counts.Discarded)
	if a.Counts.Hits > 0 {
		text += fmt.Sprintf(", %d hits of probes took %v of CPU time", a.Counts.Hits,
			a.Counts.Cost.Round(time.Microsecond))
	}
	return text
}

// causes writes "5 lost (malformed 2, ring_full 3)".
func causes(verb string, counts ...map[string]uint64) string {
	all := make(map[string]uint64)
	var sum uint64
	for _, c := range counts {
		for cause, n := range c {
			all[cause] += n
			sum += n
		}
	}
	if sum == 0 {
		return "0 " + verb
	}
	var list []string
	for _, cause := range slices.Sorted(maps.Keys(all)) {
		if n := all[cause]; n > 0 {
			list = append(list, fmt.Sprintf("%s %d", cause, n))
		}
	}
	return fmt.Sprintf("%d %s (%s)", sum, verb, strings.Join(list, ", "))
}

const (
	// LeastMissed is the shortest time before the first observation that is reported.
	LeastMissed = time.Second / 10
	// leastLost is the smallest share of lost events that is reported.
	leastLost = 0.001
	// UnknownInterval follows a sum of which too few slices of time were observed.
	UnknownInterval = "the error is unknown"
)

// Partial reports whether a part of the time was not observed.
func (t *Total) Partial() bool {
	c := profile.Coverage{Time: t.Time, Observed: t.Observed}
	return c.Partial()
}

// Scaled reports whether the sum was scaled up: a part of the time was not observed, or events were
// lost.
func (t *Total) Scaled() bool { return t.Partial() || t.Lost > leastLost }

// Incomplete reports whether the process was not observed all the time, or not in all events.
func (t *Total) Incomplete() bool { return t.Scaled() || t.Missed >= LeastMissed }

// sentence reports the sum of one process (its) or several (their), and which part of the time and
// of the events it was observed in if that is not all:
//
//	12300000000 ± 140000000 bytes
//	120.03 s, exact
//	observed 20% of the time, 4s of 20s, in 4 slices; values are scaled to all of it: 12300000000 ± 4200000000 bytes
//	nothing was observed in its first 400ms: 12300000000 ± 140000000 bytes since then
//	up to 3.1% of the events were lost; values are scaled to all of them: 12300000000 ± 420000000 bytes
func (t *Total) sentence(whose, unit string) (line string) {
	const scaled = "values are scaled to all"
	if t.Missed >= LeastMissed {
		line += fmt.Sprintf("nothing was observed in %s first %v: ", whose, t.Missed.Round(time.Second/10))
	}
	if t.Partial() {
		line += t.observedTime() + "; " + scaled + " of it: "
	}
	if t.Lost > leastLost {
		line += fmt.Sprintf("up to %s of the events were lost; "+scaled+" of them: ", Percent(t.Lost, 1))
	}
	since := ""
	if t.Missed >= LeastMissed {
		since = " since then"
	}
	sum, within := fmt.Sprintf("%.0f", t.Sum), fmt.Sprintf("%.0f", math.Ceil(float64(t.Within)))
	if unit == UnitTime {
		sum, within, unit = readableTimes(t.Sum, float64(t.Within))
	}
	switch {
	case math.IsInf(float64(t.Within), 1):
		return line + fmt.Sprintf("%s %s%s; %s", sum, unit, since, UnknownInterval)
	case t.Within == 0 && since != "": // exact, but not of all
		return line + fmt.Sprintf("%s %s%s", sum, unit, since)
	case t.Within == 0 && !t.Scaled():
		return line + fmt.Sprintf("%s %s, exact", sum, unit)
	}
	return line + fmt.Sprintf("%s ± %s %s%s", sum, within, unit, since)
}

// observedTime says which part of the time was observed, if that is not all.
func (t *Total) observedTime() string {
	const step = time.Second / 10
	if rest := t.Time - t.Observed; rest < step {
		return fmt.Sprintf("observed all but %v of %v", max(rest.Round(time.Millisecond), time.Millisecond),
			t.Time.Round(step))
	}
	c := profile.Coverage{Time: t.Time, Observed: t.Observed}
	return fmt.Sprintf("observed %s of the time, %v of %v, in %s", Percent(c.Share(), 1), t.Observed.Round(step),
		t.Time.Round(step), Plural(t.Slices, "slice"))
}

// readableTimes writes a time in ns, and the half of its interval, in a unit that fits the time.
func readableTimes(sum, half float64) (time, within, unit string) {
	scale := 1e9
	switch unit = "s"; {
	case sum < 1e6:
		scale, unit = 1e3, "µs"
	case sum < 1e9:
		scale, unit = 1e6, "ms"
	}
	return fmt.Sprintf("%.2f", sum/scale), fmt.Sprintf("%.2f", math.Ceil(100*half/scale)/100), unit
}

// String is the note behind those it is about.
func (n *Note) String() string {
	var list []string
	for _, pid := range n.PIDs {
		list = append(list, fmt.Sprint(pid))
	}
	if n.More > 0 {
		list = append(list, fmt.Sprintf("%d more", n.More))
	}
	return fmt.Sprintf("%s (pid %s): %s", n.Comm, strings.Join(list, ", "), n.Text)
}

// String is the window with its account.
func (w *Window) String() string {
	return fmt.Sprintf("window %d: from %s for %v, %v", w.Number,
		w.Start.UTC().Format("2006-01-02T15:04:05.000Z07:00"), w.Duration.Round(time.Millisecond), w.Account.String())
}

// String has three digits of a number that is estimated.
func (c *CallTotal) String() string {
	number := ThreeDigits(c.Calls)
	if c.Basis == profile.Sampled || c.Basis == profile.Counted {
		number = fmt.Sprintf("%.0f", c.Calls)
	}
	line := fmt.Sprintf("calls: %s %v, engine %s", number, c.Basis, c.Engine)
	if c.Rate != (profile.Rate{}) {
		line += fmt.Sprintf(", %v (stride x samples)", c.Rate)
	}
	if c.Overflow > 0 {
		line += fmt.Sprintf(", %.0f more did not fit into their graph", c.Overflow)
	}
	return line
}

// Process is the name of the process for display: "java (pid 4711)".
func (c *ProcessContexts) Process() string {
	comm := Printable(c.Comm)
	if comm == "" {
		comm = Unnamed
	}
	return fmt.Sprintf("%s (pid %d)", comm, c.PID)
}

// String lists the counts of profile.Contexts, without those that the mode does not have:
//
//	contexts of java (pid 4711) in window 2: chain, walked=50, linked=940, ambiguous=30, fitted=2, unplaced=1, nodes=346,
//	  shared=10, methods=122, by-depth=985/980/970, by-site=988/985/980, check=500/480/470/400
//
// (on one line). Checked samples come first in check, then those that were right.
func (c *ProcessContexts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contexts of %s", c.Process())
	if c.Window > 0 {
		fmt.Fprintf(&b, " in window %d", c.Window)
	}
	fmt.Fprintf(&b, ": %v, walked=%d, linked=%d, ambiguous=%d, fitted=%d, unplaced=%d", c.Mode, c.Walked, c.Linked,
		c.Ambiguous, c.Fitted, c.Unplaced)
	if c.Mode == profile.ContextChain {
		fmt.Fprintf(&b, ", nodes=%d, shared=%d, methods=%d", c.Nodes, c.Shared, c.Methods)
		fmt.Fprintf(&b, ", by-depth=%d/%d/%d", c.ByDepth[0], c.ByDepth[1], c.ByDepth[2])
		fmt.Fprintf(&b, ", by-site=%d/%d/%d", c.BySite[0], c.BySite[1], c.BySite[2])
	}
	if k := c.Check; k != nil {
		fmt.Fprintf(&b, ", check=%d/%d/%d/%d", k.Samples, k.Right[0], k.Right[1], k.Right[2])
	}
	return b.String()
}

// String reports what is missing.
func (r *Rounding) String() string {
	process := fmt.Sprintf("%s (pid %d)", r.Comm, r.PID)
	if r.Edges == 0 {
		return process + ": the sums of the values are too large for the format and omitted"
	}
	return fmt.Sprintf("%s: %s with less than one call each omitted (engine %s, %v); their calls count for other edges",
		process, Plural(r.Edges, "edge"), r.Engine, r.Basis)
}
