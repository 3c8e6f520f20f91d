package httpd

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"

	pprof "github.com/google/pprof/profile"
)

// A view is how the pages show a kind.
type view struct {
	column string   // heads the amounts of the front page
	whole  string   // what 100 % is, if amounts are shares of time
	leaf   []string // labels of samples that make the innermost frame of their stacks; none for no such frame
	// aside is the label kind, or profile.EventLabels.What, of events that are left out, as they
	// would be most of what is seen or count the same things again; asideAre is what people call
	// them. "" for none.
	aside, asideAre string

	events bool                                             // amounts are of events
	kind   profile.EventKind                                // kind of these events
	amount func(*profile.Profile, *profile.Process) float64 // what a process used of it in a window
	unit   string                                           // unit of amounts: count, bytes, or nanoseconds, as is ""
	value  int                                              // for events: which of profile.EventKind.Values amounts are
}

// cpuTime is the CPU time of a process in a window, in nanoseconds.
func cpuTime(p *profile.Profile, proc *profile.Process) (sum float64) {
	for _, t := range proc.Threads {
		sum += t.CPUTime(p.Period)
	}
	return sum
}

// eventAmount adds up the events of a kind of a process.
func (v *view) eventAmount(of profile.EventKind, proc *profile.Process) (sum float64) {
	for _, e := range proc.Events {
		for _, row := range e.Rows {
			if e.Kind == of && (v.aside == "" || row.What != v.aside) {
				sum += row.Values[v.value]
			}
		}
	}
	return sum
}

// cover adds how much of the time the events of a process were observed in a window.
func (v *view) cover(all *profile.Coverage, proc *profile.Process) {
	for _, e := range proc.Events {
		if v.events && e.Kind == v.kind && e.Coverage != nil {
			all.Add(e.Coverage)
		}
	}
}

// text writes an amount that came about in so much time: a share of the time, or so many a second.
func (v *view) text(amount float64, in time.Duration) string {
	seconds := max(in.Seconds(), 1e-9)
	switch v.unit {
	case "bytes":
		return scaled(amount/seconds) + "B/s"
	case "count":
		return scaled(amount/seconds) + "/s"
	}
	return fmt.Sprintf("%.1f %%", 100*amount/1e9/seconds)
}

// scaled writes a number with three digits or so and a prefix of the SI, after a blank.
func scaled(n float64) string {
	prefixes := []string{"", "k", "M", "G", "T"}
	for n >= 999.5 && len(prefixes) > 1 {
		n, prefixes = n/1000, prefixes[1:]
	}
	digits := 1
	if n >= 100 || n == math.Trunc(n) {
		digits = 0
	}
	return fmt.Sprintf("%.*f %s", digits, n, prefixes[0])
}

// unlabelled is the innermost frame of a sample that does not say of what it is.
const unlabelled = "[unknown]"

// leafOf is the innermost frame of a sample; "" for none.
func (v *view) leafOf(s *pprof.Sample) string {
	var words []string
	for _, key := range v.leaf {
		words = append(words, s.Label[key]...)
	}
	if len(v.leaf) > 0 && len(words) == 0 {
		return unlabelled
	}
	return strings.Join(words, " ")
}

// labels are those of which leafOf makes a frame.
func (v *view) labels(l profile.EventLabels) (shown profile.EventLabels) {
	for _, key := range v.leaf {
		switch key {
		case "class":
			shown.Class = l.Class
		case "kind":
			shown.What = l.What
		case "probe":
			shown.Probe = l.Probe
		case "value":
			shown.Value = l.Value
		}
	}
	return shown
}

// leaves gives samples their innermost frames, which are functions without a place.
type leaves struct {
	profile *pprof.Profile
	known   map[string]*pprof.Location
}

// add puts a frame of that name below those of s.
func (l *leaves) add(s *pprof.Sample, name string) {
	loc := l.known[name]
	if loc == nil {
		loc = addFunction(l.profile, name)
		if l.known == nil {
			l.known = make(map[string]*pprof.Location)
		}
		l.known[name] = loc
	}
	// A copy: samples of one context share their stack.
	s.Location = slices.Insert(slices.Clone(s.Location), ownFrames(s), loc)
}

// ownFrames is where in a sample's locations its own frames begin: those of who ended a wait are
// further in.
func ownFrames(s *pprof.Sample) int {
	return 1 + slices.IndexFunc(s.Location, func(loc *pprof.Location) bool {
		return loc.Mapping == nil && len(loc.Line) == 1 && loc.Line[0].Function != nil &&
			strings.HasPrefix(loc.Line[0].Function.Name, profile.WokenBy)
	})
}

// addFunction adds a function that is nowhere.
func addFunction(p *pprof.Profile, name string) *pprof.Location {
	f := &pprof.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name}
	loc := &pprof.Location{ID: uint64(len(p.Location) + 1), Line: []pprof.Line{{Function: f}}}
	p.Function, p.Location = append(p.Function, f), append(p.Location, loc)
	return loc
}
