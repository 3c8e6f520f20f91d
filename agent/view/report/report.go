// Package report writes views of stored profiles, which package input reads. Packages below it have
// further views, such as those of events. Package compare compares profiles.
//
//	p, err := input.ReadFile("vmprof.pb.gz")
//	err = report.Report(os.Stdout, p, nil)
//
// Every profile is untrusted, whichever program wrote it. What the agent's own profiles say about
// themselves is in their metadata (package stored); other profiles show their samples without it.
package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Footer writes what a reader of any view must know: one sentence that accounts for the samples or
// events, then the rest of the metadata and the profile's other comments, wrapped at width columns
// (0: not at all). What the metadata has for each process or window is summed up in one sentence.
func Footer(w io.Writer, p *pprof.Profile, width int) error {
	out := bufio.NewWriter(w)
	comments := Sentences(p)
	for i, comment := range comments {
		if i == stored.MaxComments {
			fmt.Fprintln(out, stored.Plural(len(comments)-i, "more comment"))
			break
		}
		layout.Fold(out, stored.Printable(comment), width)
	}
	return layout.Flush(out, "footer")
}

// Sentences are what Footer writes. The status comes first where less was observed than
// profile.Enough, or a part cannot be read.
func Sentences(p *pprof.Profile) []string {
	var modes [profile.ContextChain + 1]bool
	m, err := stored.MetadataOf(p)
	if err != nil {
		things := stored.TypeSamples
		if _, ok := stacks.EventKindOf(p); ok {
			things = stored.TypeEvents
		}
		return slices.Concat([]string{
			fmt.Sprintf("%s: %.0f, losses not recorded", things, stacks.Sum(p, things, nil)),
			fmt.Sprintf("metadata: %v; comments, if any, follow unchanged", err),
		}, approximations(p), doubts(p, modes[:]), stored.OtherComments(p, nil))
	}
	for _, c := range m.Contexts {
		modes[c.Mode] = true
	}
	var status []string
	if e := leastObserved(m); e != nil && !e.Good() || missingPart(m) != "" {
		status = []string{Status(p)}
	}
	return slices.Concat(status, []string{m.Account.String()}, approximations(p), doubts(p, modes[:]),
		describeWindows(stacks.Windows(p)),
		m.Remaining(), stored.OtherComments(p, m))
}

// approximations says how many samples have a frame whose method is not known, if there are any.
func approximations(p *pprof.Profile) []string {
	share := labelShare(p, stored.LabelAttribution, stored.Approximate)
	if share == 0 {
		return nil
	}
	return []string{fmt.Sprintf("inlining: in %.1f%% of the samples the JVM did not record which method ran; "+
		"[inlined in M] is M or a method inlined in M", share)}
}

// doubts says how certain contexts are that were not walked, if there are any. The modes are those
// in which contexts were found, as far as the profile says.
func doubts(p *pprof.Profile, modes []bool) []string {
	var list []string
	for _, c := range []struct {
		of   profile.Certainty
		text string // the share, then what it means
	}{
		{profile.Ambiguous, "for %s several fit and share the weight (ambiguous)"},
		{profile.Fitted, "for %s none fits, and the context of a possible caller or callee is used (fitted)"},
		{profile.Unplaced, "for %s the callers beyond the first are unknown (unplaced)"},
	} {
		if share := labelShare(p, stored.LabelContext, c.of.String()); share > 0 {
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
		list = append(list, "one fits each sample (docs/measurements/contexts.md shows how often it is right)")
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
	all := stacks.Sum(p, "samples", nil)
	if all == 0 {
		return 0
	}
	return 100 * stacks.Sum(p, "samples", func(s *pprof.Sample) bool { return s.HasLabel(key, value) }) / all
}

// Report writes the views that a profile has something for, and the footer. Of events these are
// their own view and the contexts, which safepoints have none of. Of all else they are hot methods,
// hot edges of call graphs, the contexts, which edges of call graphs alone do not have, and how
// these were found if not all stacks were walked. Nil options are layout.DefaultOptions.
func Report(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	views := []func(io.Writer, *pprof.Profile, *layout.Options) error{Methods}
	if events := events.View(p); events != nil {
		views[0] = events
	}
	if stacks.HoldsCalls(p) {
		views = append(views, Edges)
	}
	kind, ofEvents := stacks.EventKindOf(p)
	if stopped := ofEvents && kind == profile.Pauses; !stopped &&
		(ofEvents || !stacks.HasCalls(p) || stacks.HasTime(p) || stacks.HoldsContexts(p)) {
		views = append(views, Tree)
	}
	if m, err := stored.MetadataOf(p); err == nil && len(m.Contexts) > 0 {
		views = append(views, Contexts)
	}
	for _, view := range views {
		if err := view(w, p, opts); err != nil {
			return err
		}
		fmt.Fprintln(w) // an error shows at the next write
	}
	return Footer(w, p, opts.Width)
}

// Text writes the report of a profile as it is kept in a file, where names need not be shortened.
func Text(w io.Writer, p *pprof.Profile) error {
	opts := layout.DefaultOptions()
	opts.N, opts.Width, opts.SumVM = 100, 0, false
	return Report(w, p, opts)
}

// describeWindows reports in one sentence which windows a profile is of, if it says so.
func describeWindows(windows map[int64]stored.Window) []string {
	if len(windows) == 0 {
		return nil
	}
	first := windows[slices.Min(slices.Collect(maps.Keys(windows)))]
	from := fmt.Sprintf("from %s for %v", first.Start.UTC().Format(time.RFC3339),
		first.Duration.Round(time.Millisecond))
	if len(windows) == 1 {
		return []string{fmt.Sprintf("window %d: %s", first.Number, from)}
	}
	return []string{fmt.Sprintf("windows: %d, the first %s; vmprof-agent compare FILE compares them", len(windows),
		from)}
}
