package sink

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/pprof/profile"
)

// maxComments bounds the comments that are shown; a profile of our own has a few.
const maxComments = 100

// Footer writes what a reader of any view must know: one line that accounts for the samples, then the profile's
// other comments, folded at width columns (0: not at all).
func Footer(w io.Writer, p *profile.Profile, width int) error {
	out := bufio.NewWriter(w)
	comments := p.Comments
	if len(comments) == 0 || !strings.HasPrefix(comments[0], "samples: ") {
		// Another profiler's file.
		comments = append([]string{fmt.Sprintf("samples: %.0f, losses not recorded", sum(p, "samples", nil))}, comments...)
	}
	if share := approximateShare(p); share > 0 {
		comments = slices.Insert(slices.Clone(comments), 1, fmt.Sprintf("attribution: in %.1f%% of the samples "+
			"the time of the innermost method may belong to a method inlined in it", share))
	}
	for i, comment := range comments {
		if i == maxComments {
			fmt.Fprintf(out, "%d more comments\n", len(comments)-i)
			break
		}
		writeFolded(out, printable(comment), width)
	}
	return flush(out, "footer")
}

// approximateShare returns how many of the samples are labelled so, in percent.
func approximateShare(p *profile.Profile) float64 {
	all := sum(p, "samples", nil)
	if all == 0 {
		return 0
	}
	return 100 * sum(p, "samples", func(s *profile.Sample) bool { return s.HasLabel(labelAttribution, approximate) }) / all
}

// sum adds up one value of all samples, or of those to keep; it is 0 if they do not have it. It is not an integer
// because integers of a hostile file could wrap.
func sum(p *profile.Profile, sampleType string, keep func(*profile.Sample) bool) (sum float64) {
	index := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == sampleType })
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
