package compare

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// shownEstimates is how many undecided differences are written.
const shownEstimates = 3

// estimates writes the largest undecided differences that would count if they were certain, each
// with its interval and how long to record until it is decided, and how many are undecided. After
// says that decided ones were written before.
func (v *verdicts) estimates(undecided []auditRow, after bool) {
	thing := v.opts.By.noun()
	rows := slices.DeleteFunc(slices.Clone(undecided), func(r auditRow) bool { return math.Abs(r.Percent) < v.least() })
	if v.repeated != [2]string{} {
		rows = nil
	}
	rows = v.innermost(rows)
	slices.SortStableFunc(rows, byChange)
	rows, _ = layout.First(v.opts.N, rows)
	rows, _ = layout.First(shownEstimates, rows)
	switch {
	case len(rows) == 0:
	case after:
		fmt.Fprintf(v.out, "Largest undecided estimates, and how long to record if they are true:\n")
	default:
		layout.Fold(v.out, fmt.Sprintf("No difference of a %s is certain yet. Largest estimates, and how long to "+
			"record if they are true:", thing), v.opts.Width)
	}
	for _, r := range rows {
		layout.Fold(v.out, v.estimate(r), v.opts.Width)
	}
	if n := len(undecided); n > 0 {
		text := stored.Plural(n, thing) + " undecided"
		if v.opts.N > 0 {
			text += "; -n 0 shows them"
		}
		fmt.Fprintln(v.out, text)
	}
}

// estimate writes an undecided difference.
func (v *verdicts) estimate(r auditRow) string {
	l, d := v.language, r.Difference
	text := fmt.Sprintf("%s: %s → %s %s per %s", v.name(r.key, v.opts.Width), layout.Cell(d.A.PerUnit/l.scale),
		layout.Cell(d.B.PerUnit/l.scale), l.unit, v.opts.Per)
	confidence := layout.Plain(100 * (1 - v.result.Alpha))
	ratio := func(percent float64) string { return "×" + layout.Plain(1+percent/100) }
	switch {
	case math.IsNaN(d.Within):
		return text + ", undecided: too few windows for an interval"
	case math.IsNaN(d.Low): // A has none
		text += fmt.Sprintf(" (%s %% interval of the difference %s to %s)", confidence,
			layout.Cell((d.Change-d.Within)/l.scale), layout.Cell((d.Change+d.Within)/l.scale))
	default:
		text += fmt.Sprintf(" (%s, %s %% interval %s to %s)", ratio(d.Percent), confidence, ratio(d.Low), ratio(d.High))
	}
	if math.IsInf(d.Longer, 1) || math.IsNaN(d.Longer) {
		return text + ", undecided: no recording of sensible length would decide"
	}
	return text + ", undecided: recording " + v.enough(d.Longer) + " would decide"
}

// longer says how much longer to record for a verdict on the whole.
func (v *verdicts) longer(times float64) string {
	if math.IsInf(times, 1) || math.IsNaN(times) {
		return fmt.Sprintf("the difference is too near to %s %% for any recording of sensible length",
			layout.Plain(v.least()))
	}
	return "if the difference is as estimated, recording " + v.enough(times) + " would show it"
}

// enough is what to record, where so many times as much as now is enough.
func (v *verdicts) enough(times float64) string {
	times = max(math.Ceil(times*10)/10, 1.1)
	if v.result.ByRun {
		return fmt.Sprintf("about %d processes a side", int(math.Ceil(times*float64(max(v.result.Runs[0],
			v.result.Runs[1])))))
	}
	const year = 365 * 24 * 3600
	switch seconds := times * v.length().Seconds(); {
	case seconds == 0 || seconds > year:
		return layout.Plain(times) + " times as long"
	case seconds < 120:
		return fmt.Sprintf("about %.0f s a side", math.Ceil(seconds))
	case seconds < 7200:
		return fmt.Sprintf("about %.0f minutes a side", math.Ceil(seconds/60))
	default:
		return fmt.Sprintf("about %.0f hours a side", math.Ceil(seconds/3600))
	}
}

// length is how long the longer side was recorded.
func (v *verdicts) length() (longest time.Duration) {
	for _, list := range v.sides {
		var sum time.Duration
		for _, r := range list {
			for _, w := range r.Windows {
				sum += w.duration
			}
		}
		longest = max(longest, sum)
	}
	return longest
}
