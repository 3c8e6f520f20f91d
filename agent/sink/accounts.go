package sink

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// maxRepeated bounds the comments that consecutive windows add to those of the first: each may have something to say
// that no other has.
const maxRepeated = 1000

// accounts tell what the format has no place for, of one window or of several.
type accounts struct {
	counts   profile.Counts
	events   *eventAccounts // nil unless the profile is of events
	start    time.Time      // of the first window
	end      time.Time      // of the last one
	lines    []string       // comments of the windows themselves, each once
	leftOut  int            // beyond maxRepeated
	windows  []string       // windowLines, if there are several
	calls    callAccounts
	contexts []string // ToldContexts
	rounded  []string // what rounding did
	notes    processNotes
	programs programs
}

// add takes in what the content has of one window, with its number if there are to be several, else 0.
func (a *accounts) add(p *profile.Profile, content Content, window int64) {
	addCounts(&a.counts, p.Counts)
	summary := Summary(p.Counts)
	kind, ofEvents := content.Events()
	if ofEvents {
		one := &eventAccounts{kind: kind}
		one.add(p)
		summary = one.String()
		if a.events == nil {
			a.events = &eventAccounts{kind: kind}
		}
		a.events.add(p)
	}
	if a.start.IsZero() {
		a.start = p.Start
	}
	a.end = p.Start.Add(p.Duration)
	if p.Event != "" && !ofEvents {
		a.line(fmt.Sprintf("event: %s, one sample per %v of CPU time", printable(p.Event), p.Period), window)
	}
	for _, c := range p.Comments {
		a.line(printable(c), window)
	}
	if window > 0 {
		w := windowLine{number: window, start: p.Start, duration: p.Duration, summary: summary}
		a.windows = append(a.windows, w.String())
	}
	a.programs.add(p)
	for _, proc := range p.Processes {
		a.notes.add(proc, proc.Notes)
	}
	if ofEvents {
		return
	}
	a.calls.add(p)
	for _, proc := range p.Processes {
		if proc.Contexts != nil {
			c := ProcessContexts{Comm: proc.Comm, PID: int64(proc.PID), Window: window, Contexts: *proc.Contexts}
			a.contexts = append(a.contexts, c.String())
		}
	}
}

// line keeps a comment, unless an earlier window had it, too.
func (a *accounts) line(text string, window int64) {
	if window > 1 {
		if slices.Contains(a.lines, text) {
			return
		}
		if len(a.lines) >= maxRepeated {
			a.leftOut++
			return
		}
	}
	a.lines = append(a.lines, text)
}

// round keeps what rounding did.
func (a *accounts) round(text string) {
	switch {
	case slices.Contains(a.rounded, text):
	case len(a.rounded) < maxRepeated:
		a.rounded = append(a.rounded, text)
	default:
		a.leftOut++
	}
}

// duration is the time from the beginning of the first window to the end of the last.
func (a *accounts) duration() time.Duration { return a.end.Sub(a.start) }

// comments returns all as comments: the accounts of samples, or of events, come first.
func (a *accounts) comments() []string {
	summary, basis := Summary(a.counts), []string(nil)
	if a.events != nil {
		summary, basis = a.events.String(), slices.Concat(a.events.parts.lines(), a.events.basis.lines())
	}
	lines := slices.Concat([]string{summary}, basis, a.lines, a.windows, a.calls.lines(), a.contexts, a.rounded, a.notes.lines())
	if a.leftOut > 0 {
		lines = append(lines, fmt.Sprintf("%s of single windows left out", plural(a.leftOut, "comment")))
	}
	return lines
}

// addCounts adds the accounts of one window to those of the windows before.
func addCounts(sum *profile.Counts, c profile.Counts) {
	sum.Attempted += c.Attempted
	sum.Delivered += c.Delivered
	sum.Folded += c.Folded
	sum.Idle += c.Idle
	sum.Filtered += c.Filtered
	sum.Stale += c.Stale
	sum.Unknown += c.Unknown
	sum.Dropped = addEach(sum.Dropped, c.Dropped)
	sum.Discarded = addEach(sum.Discarded, c.Discarded)
	sum.Truncated = addEach(sum.Truncated, c.Truncated)
}

func addEach(sum, counts map[string]uint64) map[string]uint64 {
	if sum == nil {
		return maps.Clone(counts) // the window's own is not to change
	}
	for cause, n := range counts {
		sum[cause] += n
	}
	return sum
}
