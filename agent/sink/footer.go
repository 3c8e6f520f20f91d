package sink

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// maxComments bounds the comments that are shown; a profile of our own has a few.
const maxComments = 100

// Footer writes what a reader of any view must know: one line that accounts for the samples or events, then the profile's
// other comments, folded at width columns (0: not at all). What there is a comment for each process or window of is
// told in one sentence.
func Footer(w io.Writer, p *pprof.Profile, width int) error {
	out := bufio.NewWriter(w)
	comments := p.Comments
	things := typeSamples
	if _, ok := EventKindOf(p); ok {
		things = typeEvents
	}
	if len(comments) == 0 || !strings.HasPrefix(comments[0], things+": ") {
		// Another profiler's file.
		comments = append([]string{fmt.Sprintf("%s: %.0f, losses not recorded", things, sum(p, things, nil))}, comments...)
	}
	var (
		rest    []string
		modes   [profile.ContextChain + 1]bool
		windows = make(map[int64]windowLine)
	)
	for _, comment := range comments[1:] {
		if l, ok := parseContextLine(comment); ok {
			modes[l.Mode] = true
		} else if l, ok := parseWindowLine(comment); ok {
			windows[l.number] = l
		} else {
			rest = append(rest, comment)
		}
	}
	comments = slices.Concat(comments[:1], approximations(p), doubts(p, modes[:]), describeWindows(windows), rest)
	for i, comment := range comments {
		if i == maxComments {
			fmt.Fprintf(out, "%d more comments\n", len(comments)-i)
			break
		}
		writeFolded(out, printable(comment), width)
	}
	return flush(out, "footer")
}

// approximations says of how many samples the innermost method is not known, if it is of any.
func approximations(p *pprof.Profile) []string {
	share := labelShare(p, labelAttribution, approximate)
	if share == 0 {
		return nil
	}
	return []string{fmt.Sprintf("attribution: in %.1f%% of the samples the leaf is [inlined in M]: M, or a method that was "+
		"inlined in it", share)}
}

// doubts says how certain contexts are that were not walked, if there are any. The modes are those in which contexts were
// found, as far as the profile says.
func doubts(p *pprof.Profile, modes []bool) []string {
	var list []string
	for _, c := range []struct {
		of   profile.Certainty
		text string // the share, then what it means
	}{
		{profile.Ambiguous, "of %s several fit and share the weight (ambiguous)"},
		{profile.Fitted, "of %s none fits, and that of a possible caller or callee was taken (fitted)"},
		{profile.Unplaced, "of %s nothing is known beyond the first caller (unplaced)"},
	} {
		if share := labelShare(p, labelContext, c.of.String()); share > 0 {
			amount := atLeast(share)
			if len(list) == 0 {
				amount += " of the samples"
			}
			list = append(list, fmt.Sprintf(c.text, amount))
		}
	}
	var names []string
	for m, used := range modes {
		if used && profile.ContextMode(m) != profile.ContextWalk {
			names = append(names, profile.ContextMode(m).String())
		}
	}
	switch {
	case len(list) == 0 && len(names) == 0:
		return nil
	case len(list) == 0:
		list = append(list, "one fits each sample (how often it is the right one: docs/accuracy.md)")
	}
	text := "contexts"
	if len(names) > 0 {
		text += " (" + strings.Join(names, ", ") + ")"
	}
	return []string{text + ": " + strings.Join(list, "; ")}
}

// atLeast writes a share that is not 0, in percent.
func atLeast(share float64) string {
	if share < 0.05 {
		return "less than 0.1%"
	}
	return fmt.Sprintf("%.1f%%", share)
}

// labelShare returns how many of the samples have a label, in percent.
func labelShare(p *pprof.Profile, key, value string) float64 {
	all := sum(p, "samples", nil)
	if all == 0 {
		return 0
	}
	return 100 * sum(p, "samples", func(s *pprof.Sample) bool { return s.HasLabel(key, value) }) / all
}

// sum adds up one value of all samples, or of those to keep; it is 0 if they do not have it. It is not an integer
// because integers of a hostile file could wrap.
func sum(p *pprof.Profile, sampleType string, keep func(*pprof.Sample) bool) (sum float64) {
	index := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == sampleType })
	if index < 0 {
		return 0
	}
	for _, sample := range p.Sample {
		if keep == nil || keep(sample) {
			sum += float64(sample.Value[index])
		}
	}
	return sum
}

// writeFolded writes text in lines of at most width columns, broken at spaces and indented from the second on.
func writeFolded(out *bufio.Writer, text string, width int) {
	const indent = "  "
	column := 0
	for i, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width > 0 && column+1+length > width:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += length
	}
	out.WriteByte('\n')
}
