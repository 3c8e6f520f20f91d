package compare

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Per is the unit of work that costs are divided by. The zero value is a second of wall time.
type Per struct {
	units  [2]float64 // numbers of units in A and B as the user counted them, 0 for none
	method string     // method whose calls are counted
}

// ParsePer reads a Per: seconds, N, NA:NB or calls:METHOD.
func ParsePer(text string) (Per, error) {
	if method, ok := strings.CutPrefix(text, "calls:"); ok && method != "" {
		return PerCallOf(method), nil
	}
	if text == "seconds" {
		return Per{}, nil
	}
	var per Per
	for i, word := range strings.SplitN(text, ":", 2) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil || !(n > 0) || math.IsInf(n, 0) {
			return Per{}, fmt.Errorf("cannot compare per %q: choose seconds, a number such as 6000 or 6000:6100 of A "+
				"and B, or calls:METHOD", text)
		}
		per.units[i] = n
	}
	if per.units[1] == 0 {
		per.units[1] = per.units[0]
	}
	return per, nil
}

// PerCallOf is a call of a method.
func PerCallOf(method string) Per { return Per{method: method} }

// perSecond says that the unit is time.
func (p Per) perSecond() bool { return p == Per{} }

// String is what follows "per" in a sentence.
func (p Per) String() string {
	switch {
	case p.method != "":
		return "call of " + stored.Printable(p.method)
	case p.perSecond():
		return "second"
	}
	return "unit"
}

const (
	// maxAuditWindows is how many windows of one run are compared; where there are more, neighbours
	// become one.
	maxAuditWindows = 240
	// confidenceOfCalls is that of the intervals of estimated calls, in standard errors: 95 %.
	confidenceOfCalls = 1.96
)

// A Recording is one file of a side.
type Recording struct {
	Named
	stacks  *stacks.Samples
	samples *stacks.Samples // how many samples the values come from; nil if the values are exact
	Calls   *stacks.Samples // nil unless calls are the unit
	Windows []*Window
	of      map[processKey]bool // the processes that have values
}

// A Window is a window of a Recording.
type Window struct {
	start    time.Time
	duration time.Duration
	Samples  []*pprof.Sample
	Units    float64 // units of work, once they are counted
}

// A processKey identifies a process of one host. The zero value is none.
type processKey struct {
	pid  int64
	comm string
}

// readSide reads the recordings of a side, in the order of their times.
func readSide(side []Named, sampleType string, opts *AuditOptions) ([]*Recording, error) {
	list := make([]*Recording, 0, len(side))
	for _, n := range side {
		r, err := ReadRecording(n, sampleType, opts)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b *Recording) int { return a.Windows[0].start.Compare(b.Windows[0].start) })
	return list, nil
}

// ReadRecording reads the values of a type, and divides them by window.
func ReadRecording(n Named, sampleType string, opts *AuditOptions) (*Recording, error) {
	r := &Recording{Named: n}
	var err error
	if r.stacks, err = stacks.NewSamples(n.Profile, sampleType); err != nil {
		return nil, fmt.Errorf("read %s: %w", n.Name, err)
	}
	r.stacks.LeaveWaits()
	if r.stacks.OfCalls() {
		if err := keepEngine(r.stacks, n, opts.Engine); err != nil {
			return nil, err
		}
	}
	for _, counted := range []string{stored.TypeSamples, stored.TypeEvents} {
		if stacks.TypeIndex(n.Profile, counted) >= 0 && !r.stacks.OfCalls() {
			if r.samples, err = stacks.NewSamples(n.Profile, counted); err != nil {
				return nil, fmt.Errorf("read %s: %w", n.Name, err)
			}
			break
		}
	}
	if opts.Per.method != "" {
		if !stacks.HasCalls(n.Profile) {
			return nil, fmt.Errorf("%s has no calls, so --per=calls does not apply: record with --count=%s, or give "+
				"the number of units with --per=N", n.Name, stored.Printable(opts.Per.method))
		}
		if r.Calls, err = stacks.NewSamples(n.Profile, stored.TypeCalls); err != nil {
			return nil, fmt.Errorf("read %s: %w", n.Name, err)
		}
		if err := keepEngine(r.Calls, n, opts.Engine); err != nil {
			return nil, err
		}
	}
	if err := r.divide(); err != nil {
		return nil, fmt.Errorf("read %s: %w", n.Name, err)
	}
	r.of = make(map[processKey]bool)
	for sample := range r.stacks.All() {
		r.of[processKey{stacks.ProcessID(sample), stacks.Label(sample, stored.LabelComm)}] = true
	}
	return r, nil
}

// keepEngine keeps the calls of one engine, or of the only one.
func keepEngine(s *stacks.Samples, n Named, engine string) error {
	if engine == "" {
		return oneEngine(n)
	}
	s.Keep = func(sample *pprof.Sample) bool { return stacks.Label(sample, stored.LabelEngine) == engine }
	return nil
}

// divide makes the windows. A profile without any is one.
func (r *Recording) divide() error {
	samples, err := stacks.ByWindow(r.Profile)
	if err != nil {
		return err
	}
	about := stacks.Windows(r.Profile)
	numbers := slices.Collect(maps.Keys(samples))
	for n := range about {
		if samples[n] == nil {
			numbers = append(numbers, n) // nothing was sampled
		}
	}
	slices.Sort(numbers)
	start := time.Unix(0, r.Profile.TimeNanos)
	if len(numbers) == 0 {
		r.Windows = []*Window{{start: start, duration: max(time.Duration(r.Profile.DurationNanos), 0),
			Samples: r.Profile.Sample}}
		return nil
	}
	each := time.Duration(max(r.Profile.DurationNanos, 0) / int64(len(numbers))) // where nothing else is known
	for _, n := range numbers {
		p := &Window{start: start, duration: each, Samples: samples[n]}
		if w, known := about[n]; known {
			p.start, p.duration = w.Start, w.Duration
		}
		r.Windows = append(r.Windows, p)
		start = p.start.Add(p.duration)
	}
	return nil
}

// end is when the recording ended.
func (r *Recording) end() time.Time {
	last := r.Windows[len(r.Windows)-1]
	return last.start.Add(last.duration)
}

// processesOf is how many processes have values in some recordings, each counted once.
func processesOf(list []*Recording) int {
	seen := make(map[processKey]bool)
	for _, r := range list {
		maps.Copy(seen, r.of)
	}
	return len(seen)
}

// A processRun is the recordings of one process, one after the other.
type processRun []*Recording

// runsOf puts the recordings of one process together: those that have a pid and its name in common,
// of times that do not overlap. A recording without samples may be of any process.
func runsOf(list []*Recording) (runs []processRun) {
	for _, r := range list {
		i := slices.IndexFunc(runs, func(earlier processRun) bool {
			last := earlier[len(earlier)-1]
			overlap := last.end().Sub(r.Windows[0].start)
			return overlap <= r.end().Sub(r.Windows[0].start)/2 && slices.ContainsFunc(earlier, r.sharesProcess)
		})
		if i < 0 {
			runs = append(runs, processRun{r})
		} else {
			runs[i] = append(runs[i], r)
		}
	}
	return runs
}

// sharesProcess says that two recordings may be of one process.
func (r *Recording) sharesProcess(other *Recording) bool {
	if len(r.of) == 0 || len(other.of) == 0 {
		return true
	}
	for key := range r.of {
		if other.of[key] {
			return true
		}
	}
	return false
}

// count gives each window of a side its units, and returns their relative standard error if they
// are estimated.
func (p Per) count(side int, list []*Recording) (float64, error) {
	switch {
	case p.method != "":
		return p.CountCalls(list)
	case p.perSecond():
		for _, r := range list {
			for _, w := range r.Windows {
				if w.duration <= 0 && len(w.Samples) > 0 {
					return 0, fmt.Errorf("%s does not say how long it took: give the number of units with --per=N",
						r.Name)
				}
				w.Units = w.duration.Seconds()
			}
		}
		return 0, nil
	}
	all, n := 0.0, 0
	for _, r := range list {
		for _, w := range r.Windows {
			all += w.duration.Seconds()
			n++
		}
	}
	for _, r := range list {
		for _, w := range r.Windows {
			w.Units = p.units[side] / float64(n)
			if all > 0 {
				w.Units = p.units[side] * w.duration.Seconds() / all
			}
		}
	}
	return 0, nil
}

// CountCalls counts the calls of the method in each window. Windows without any become a part of
// the one before.
func (p Per) CountCalls(list []*Recording) (relative float64, err error) {
	within := profile.Interval{}
	for _, r := range list {
		for _, w := range r.Windows {
			for _, sample := range w.Samples {
				value := float64(r.Calls.Value(sample))
				if value == 0 {
					continue
				}
				if m := r.Calls.Edge(sample).Callee; m.Name != p.method && m.SystemName != p.method {
					continue
				}
				switch basis := stacks.Label(sample, stored.LabelBasis); basis {
				case profile.Sampled.String(), profile.Unmeasured.String():
					return 0, fmt.Errorf("%s: the calls of %s are %s, which is not their number: give that with "+
						"--per=N, or record with another engine", r.Name, stored.Printable(p.method), basis)
				default:
					interval := profile.Interval{Low: value, High: value}
					// Errors of counted calls differ from window to window, as the bootstrap sees.
					if stacks.Label(sample, stored.LabelEngine) != stored.EngineCount {
						interval, _ = stacks.IntervalOf(sample, value, basis)
					}
					within = within.Add(interval)
					w.Units += value
				}
			}
		}
		var kept []*Window
		for _, w := range r.Windows {
			if last := len(kept) - 1; last >= 0 && (w.Units == 0 || kept[last].Units == 0) {
				kept[last].join(w)
			} else {
				kept = append(kept, w)
			}
		}
		if r.Windows = kept; kept[0].Units == 0 {
			return 0, fmt.Errorf("%s has no %s: name the method as report shows it", r.Name,
				strings.Replace(p.String(), "call", "calls", 1))
		}
	}
	return math.Log(within.Factor()) / confidenceOfCalls, nil
}

// join adds the next window.
func (w *Window) join(next *Window) {
	w.duration += next.duration
	w.Units += next.Units
	w.Samples = append(slices.Clone(w.Samples), next.Samples...)
}

// coarse are the windows of a run, one or more neighbours at a time, so that there are at most
// maxAuditWindows.
func (r processRun) coarse() [][]placed {
	var all []placed
	for _, file := range r {
		for _, w := range file.Windows {
			all = append(all, placed{file, w})
		}
	}
	together := max((len(all)+maxAuditWindows-1)/maxAuditWindows, 1)
	return slices.Collect(slices.Chunk(all, together))
}

// A placed window is one of that recording.
type placed struct {
	*Recording
	*Window
}

// Cost is what a sample says.
func (r *Recording) Cost(sample *pprof.Sample) audit.Cost {
	c := audit.Cost{Amount: float64(r.stacks.Value(sample))}
	if r.samples != nil && c.Amount > 0 {
		c.Samples = float64(r.samples.Value(sample))
		if each := stacks.Number(sample, stored.LabelDraw); each > 0 { // one wait may stand for more than others
			c.Samples = c.Amount / float64(each)
		}
	}
	return c
}

// auditType chooses the type of values to compare: the wanted one, CPU time, that of the kind of
// events, or any that all have.
func auditType(a, b []Named, wanted string) (string, error) {
	if len(a) == 0 || len(b) == 0 {
		return "", errors.New("both sides need a recording")
	}
	if kind, ok := stacks.EventKindOf(a[0].Profile); wanted == "" && ok {
		wanted = stored.MainValue(kind).Type
	}
	hasCPU := func(n Named) bool {
		i := stacks.TypeIndex(n.Profile, stored.TypeCPU)
		return i >= 0 && hasValues(n.Profile, i)
	}
	if wanted == "" && slices.ContainsFunc(a, hasCPU) && slices.ContainsFunc(b, hasCPU) {
		wanted = stored.TypeCPU
	}
	chosen, err := commonType(a[0], b[0], wanted)
	if err != nil {
		return "", err
	}
	for _, n := range slices.Concat(a, b) {
		if _, err := commonType(a[0], n, chosen); err != nil {
			return "", err
		}
	}
	return chosen, nil
}

// HasWindows reports whether a profile has several windows.
func HasWindows(p *pprof.Profile) bool {
	windows, err := stacks.ByWindow(p)
	return err == nil && len(windows) > 1
}

// HasEnoughWindows reports whether a recording has as many windows as an interval needs.
func HasEnoughWindows(p *pprof.Profile) bool {
	windows, err := stacks.ByWindow(p)
	return err == nil && len(windows) >= audit.LeastWindows
}

// sameRecordings reports whether two sides are the same recordings, whatever their files are
// called.
func sameRecordings(a, b []Named) bool {
	if len(a) != len(b) {
		return false
	}
	b = slices.Clone(b)
	for _, n := range a {
		i := slices.IndexFunc(b, func(other Named) bool { return sameProfile(n.Profile, other.Profile) })
		if i < 0 {
			return false
		}
		b = slices.Delete(b, i, i+1)
	}
	return true
}

// sameProfile reports whether two profiles have the same content. Most that differ do so in their
// times.
func sameProfile(a, b *pprof.Profile) bool {
	switch {
	case a == b:
		return true
	case a.TimeNanos != b.TimeNanos || a.DurationNanos != b.DurationNanos || len(a.Sample) != len(b.Sample) ||
		len(a.Location) != len(b.Location):
		return false
	}
	var sums [2][sha256.Size]byte
	for i, p := range []*pprof.Profile{a, b} {
		hash := sha256.New()
		if err := p.WriteUncompressed(hash); err != nil {
			return false
		}
		hash.Sum(sums[i][:0])
	}
	return sums[0] == sums[1]
}

// Method is the method whose calls are the unit; "" if another thing is.
func (p Per) Method() string { return p.method }
