package report

import (
	"bufio"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Doubts about a recording.
const (
	good        = "good"
	nothing     = "empty"
	unobserved  = "nothing observed"
	partial     = "partial"     // less than profile.Enough of what there was
	coarse      = "coarse"      // too few samples
	approximate = "approximate" // what samples are of is not known exactly
	incomplete  = "incomplete"  // something is missing
)

// Status is the line that says how a recording is to be read, without the number of notes: "status:
// good: 695 samples, 0 lost".
func Status(p *pprof.Profile) string {
	word, why := doubt(p)
	if why != "" {
		word += ": " + why
	}
	return "status: " + word
}

// status says in a line, or in up to three, whether something changes how the recording is to be
// read.
func (o *SummaryOptions) status(p *pprof.Profile) string {
	word, why := doubt(p)
	color := green
	if word != good && word != nothing {
		color = yellow
	}
	sentences := Sentences(p)
	account := slices.IndexFunc(sentences, func(s string) bool { return !strings.HasPrefix(s, "status: ") })
	line := word
	if why != "" {
		line += ": " + why
	}
	if notes := len(sentences) - account - 1; notes > 0 {
		line += fmt.Sprintf("; %s (--notes)", stored.Plural(notes, "note"))
	}
	const prefix, most = "status: ", 3 // lines
	if over := utf8.RuneCountInString(prefix+line) - most*o.Width*9/10; over > 0 && why != "" {
		runes := []rune(why)
		line = strings.Replace(line, why, string(runes[:max(len(runes)-over-1, 0)])+"…", 1)
	}
	var b strings.Builder
	out := bufio.NewWriter(&b)
	layout.Fold(out, prefix+line, o.Width)
	if err := out.Flush(); err != nil {
		return prefix + word + "\n"
	}
	return strings.Replace(b.String(), word, o.paint(color, word), 1)
}

const (
	fewSamples   = 100  // the interval of a share of 10 % is ± 6 points there
	muchLost     = 0.02 // part of what was sampled
	muchDoubted  = 0.10
	muchUnnamed  = 0.25
	missingNames = " frames of process " // of Java, or of Python
)

// doubt is the most important of what changes the reading of a recording, in one word and why.
func doubt(p *pprof.Profile) (word, why string) {
	m, err := stored.MetadataOf(p)
	if err != nil {
		return good, ""
	}
	extent := leastObserved(m)
	if part := missingPart(m); part != "" && (extent == nil || extent.Good()) {
		return incomplete, part
	}
	if m.Events != nil {
		counts := m.Events.Counts
		switch {
		case extent != nil && !extent.Good():
			return extentDoubt(extent)
		case m.Events.Observed == 0:
			return nothing, "0 events"
		case counts.LostShare() > muchLost:
			return incomplete, layout.Percent(counts.LostShare()) + " of the events were lost"
		case m.Followed != "" && !hasSlow(p):
			return incomplete, "no call of " + m.Followed + " was seen"
		case len(m.Observed()) > 0:
			return approximate, "events were observed part of the time, the rest is estimated"
		case m.Repeated() == profile.InStep:
			return approximate, "sites of allocations were observed in step with the ends of buffers"
		case m.Repeated() != "":
			return approximate, "allocations were observed at one site only, and others in step with it would not be " +
				"seen"
		case events.VagueTimes(p) != "":
			return approximate, events.VagueTimes(p)
		case m.Events.Observed < fewSamples:
			return coarse, "only " + stored.Plural(int(m.Events.Observed), "event")
		}
		return good, fmt.Sprintf("%d events, %d lost", m.Events.Observed, counts.Lost())
	}
	if extent != nil && !extent.Good() {
		return extentDoubt(extent)
	}
	c := m.Samples
	var lost uint64
	for _, counts := range []map[string]uint64{c.Dropped, c.Discarded} {
		for _, n := range counts {
			lost += n
		}
	}
	var truncated uint64
	for _, n := range c.Truncated {
		truncated += n
	}
	if why := vagueCalls(p); why != "" {
		return approximate, why
	}
	if !stacks.HasTime(p) { // calls
		switch {
		case len(p.Sample) == 0:
			return nothing, "0 calls"
		case 0 < c.Folded && c.Folded < fewSamples:
			return coarse, fmt.Sprintf("only %s, %d lost", stored.Plural(int(c.Folded), "sample"), lost)
		}
		return good, fmt.Sprintf("%d lost", lost)
	}
	share := func(n uint64) float64 { return float64(n) / float64(max(c.Folded, 1)) }
	unnamed := stacks.Sum(p, stored.TypeSamples, func(s *pprof.Sample) bool { return leafUnnamed(s) })
	uncertain := 0.0
	for _, name := range []string{"ambiguous", "fitted", "unplaced"} {
		uncertain += labelShare(p, stored.LabelContext, name) / 100
	}
	approximated := labelShare(p, stored.LabelAttribution, stored.Approximate) / 100
	account := fmt.Sprintf("%s, %d lost", stored.Plural(int(min(c.Folded, math.MaxInt32)), "sample"), lost)
	if i := slices.IndexFunc(m.Notes, func(n stored.Note) bool {
		return strings.Contains(n.Text, missingNames) && strings.Contains(n.Text, " are missing")
	}); i >= 0 {
		return incomplete, m.Notes[i].Text
	}
	switch {
	case share(lost) > muchLost:
		return incomplete, layout.Percent(share(lost)) + " of the samples were lost"
	case share(truncated) > muchDoubted:
		return incomplete, layout.Percent(share(truncated)) + " of the stacks are truncated"
	case unnamed > muchUnnamed*float64(max(c.Folded, 1)):
		return incomplete, layout.Percent(unnamed/float64(c.Folded)) + " of the time is in code without names"
	case c.Folded == 0:
		return nothing, account
	case c.Folded < fewSamples:
		return coarse, account
	case approximated > muchDoubted:
		return approximate, layout.Percent(approximated) + " of stacks have [inlined in M]"
	case uncertain > muchDoubted:
		return approximate, "the callers of " + layout.Percent(uncertain) + " of the samples are uncertain"
	}
	return good, account
}

// missingPart says which part of a history cannot be read; "" if all can.
func missingPart(m *stored.Metadata) string {
	if i := slices.IndexFunc(m.Remarks, func(s string) bool {
		return strings.HasPrefix(s, profile.MissingPart)
	}); i >= 0 {
		return m.Remarks[i]
	}
	return ""
}

// MissingPart says which part of the history that a profile is of cannot be read; "" if all can.
func MissingPart(p *pprof.Profile) string {
	m, err := stored.MetadataOf(p)
	if err != nil {
		return ""
	}
	return missingPart(m)
}

// vague is the ratio of the ends of an interval above which a number of calls is only a rough one.
const vague = 2

// vagueCalls says how far off the number of calls may be, if that changes how they are to be read;
// "" otherwise.
func vagueCalls(p *pprof.Profile) string {
	if !stacks.HasCalls(p) {
		return ""
	}
	engines, err := callsByEngine(p)
	if err != nil {
		return ""
	}
	for _, e := range engines {
		if within := e.totalWithin(); e.estimated && within.High > vague*within.Low {
			return fmt.Sprintf("there were between %s and %s calls (95 %%)", stored.ThreeDigits(within.Low),
				stored.ThreeDigits(within.High))
		}
	}
	return ""
}

// leastObserved is the extent of all processes together that is observed worst; nil if none is
// known.
func leastObserved(m *stored.Metadata) *profile.Extent {
	list := m.ExtentsTogether()
	if i := slices.IndexFunc(list, func(e profile.Extent) bool { return !e.Good() }); i >= 0 {
		return &list[i]
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// extentDoubt is what an extent that is not good says of a recording.
func extentDoubt(e *profile.Extent) (word, why string) {
	why = stored.ExtentSentence(e)
	if e.There > 0 && e.Observed == 0 {
		return unobserved, strings.TrimPrefix(why, "no "+e.What+" observed, although ")
	}
	return partial, why
}

// leafUnnamed reports whether the innermost frame of a sample has no name.
func leafUnnamed(s *pprof.Sample) bool {
	if len(s.Location) == 0 || len(s.Location[0].Line) == 0 || s.Location[0].Line[0].Function == nil {
		return true
	}
	return stored.IsUnnamed(s.Location[0].Line[0].Function.Name)
}
