package events

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// PerCall returns a view of what a call of the unit's method takes, on average over all of its
// calls: by cause, and by the methods that it calls. The profile is of time, and has the number of
// calls (record --count). Time in copies of the method whose calls were not counted is left out: in
// those that are inlined, or interpreted.
func PerCall(per compare.Per) func(io.Writer, *pprof.Profile, *layout.Options) error {
	return func(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
		opts = opts.OrDefault()
		v := &perCall{opts: opts, method: per.Method()}
		if err := v.read(p, per); err != nil {
			return err
		}
		return v.write(w, p)
	}
}

// A perCall is the time of a method by cause and by what it calls, and its calls.
type perCall struct {
	opts    *layout.Options
	method  string
	calls   float64
	within  float64 // half of the 95 % interval of calls, as a part of them
	counted bool    // calls were counted by breakpoints, which see no inlined and no interpreted calls

	amount           func(float64) string
	main             int // index of the main value of a tally
	all, leftOut     tally
	byCause, byBelow eventGroups[string]
	recursive        bool
}

// read fails if the profile has no calls of the method, or nothing to divide by them.
func (v *perCall) read(p *pprof.Profile, per compare.Per) error {
	const name = "the profile"
	events, s, err := v.events(p)
	if err != nil {
		return err
	}
	r, err := compare.ReadRecording(compare.Named{Name: name, Profile: p}, s.Profile.SampleType[s.Column].Type,
		&compare.AuditOptions{Per: per})
	if err != nil {
		return err
	}
	if _, err := per.CountCalls([]*compare.Recording{r}); err != nil {
		return err
	}
	var within profile.Interval
	for sample, value := range r.Calls.All() {
		if m := r.Calls.Edge(sample).Callee; m.Name == v.method || m.SystemName == v.method {
			v.calls += float64(value)
			interval, _ := stacks.IntervalOf(sample, float64(value), stacks.Label(sample, stored.LabelBasis))
			within = within.Add(interval)
			v.counted = v.counted || stacks.Label(sample, stored.LabelEngine) == stored.EngineCount
		}
	}
	v.within = within.Factor() - 1
	v.amount = s.Amount
	var frames []stacks.Frame
	for sample, t := range events {
		frames = s.AppendFrames(frames[:0], sample)
		v.add(frames, cmp.Or(stacks.Label(sample, stored.LabelCause), cause.Running), t)
	}
	if v.all.events == 0 {
		return fmt.Errorf("%s was called %s times, but no sample has it in its stack: record for longer",
			stored.Printable(v.method), layout.Quantity(v.calls))
	}
	return nil
}

// events are the samples with their values, and the stacks by the value to divide.
func (v *perCall) events(p *pprof.Profile) (iter.Seq2[*pprof.Sample, tally], *stacks.Samples, error) {
	if kind, ok := stacks.EventKindOf(p); ok {
		e, err := readEvents(p, kind)
		if err != nil {
			return nil, nil, err
		}
		v.main = kind.Main()
		s, err := stacks.NewSamples(p, stored.MainValue(kind).Type)
		return e.all(), s, err
	}
	if stacks.TypeIndex(p, stored.TypeCPU) < 0 || !stacks.HasTime(p) {
		return nil, nil, errors.New("the profile has no time to divide by calls: record with -e wall --count=METHOD")
	}
	s, err := stacks.NewSamples(p, stored.TypeCPU)
	if err != nil {
		return nil, nil, err
	}
	samples := stacks.TypeIndex(p, stored.TypeSamples)
	return func(yield func(*pprof.Sample, tally) bool) {
		for sample, value := range s.All() {
			t := tally{events: float64(sample.Value[samples])}
			t.values[v.main] = float64(value)
			t.variance = float64(value) * float64(value) / max(t.events, 1)
			if !yield(sample, t) {
				return
			}
		}
	}, s, nil
}

// add adds a sample if the method is in its stack.
func (v *perCall) add(frames []stacks.Frame, cause string, t tally) {
	at, found := -1, 0
	for i, f := range frames {
		if f.Name != v.method && f.SystemName != v.method {
			continue
		}
		found++
		if !v.counted || f.Flags&(stacks.Inlined|stacks.Interpreted) == 0 {
			at = i
		}
	}
	switch {
	case found == 0:
		return
	case at < 0:
		v.leftOut.add(t)
		return
	case found > 1:
		v.recursive = true
	}
	below := frames[at].Name // itself, unless it calls a method of the program
	if at > 0 && !frames[at-1].Native && frames[at-1].Name[0] != '[' {
		below = frames[at-1].Name
	}
	v.all.add(t)
	v.byCause.get(cause).add(t)
	method := v.byBelow.get(below)
	method.add(t)
	method.parts.get(eventPart{class: cause}).add(t)
}

// each is what a call takes of a sum.
func (v *perCall) each(t tally) string { return v.amount(t.values[v.main] / v.calls) }

// interval is half of the 95 % interval of what a call takes of a sum, in percent of that.
func (v *perCall) interval(t tally) string {
	if t.values[v.main] == 0 {
		return "-"
	}
	variance := t.apart()
	half := math.Hypot(normal95*math.Sqrt(variance)/t.values[v.main], v.within)
	if variance > 0 && t.events < leastEvents {
		half = math.Inf(1)
	}
	return halfWidth(100*half, "%")
}

func (v *perCall) write(w io.Writer, p *pprof.Profile) error {
	out := bufio.NewWriter(w)
	calls := ""
	if v.within > 0 {
		calls = fmt.Sprintf(" (%s)", halfWidth(100*v.within, "%"))
	}
	head := fmt.Sprintf("%s%s: %s%s, %s each (%s)", v.method, stacks.Elapsed(p),
		layout.ManyOf(layout.Quantity(math.Round(v.calls)), "calls"), calls, v.each(v.all), v.interval(v.all))
	const named = 3 // causes in the heading
	for i, g := range v.byCause.sorted(v.main) {
		if i == named {
			break
		}
		head += [...]string{": ", ", ", ", "}[i] + g.key + " " + v.each(g.tally)
	}
	layout.Fold(out, head, v.opts.Width)
	table := eventTable{opts: v.opts, out: out, order: []int{v.main}}
	table.columns = []eventColumn{shareColumn(v.main, v.all), {"each", v.each}, {"±95%", v.interval}}
	writeBelow(&table, "cause", &v.byCause)
	writeBelow(&table, "called method / cause", &v.byBelow)
	if v.leftOut.values[v.main] > 0 {
		layout.Fold(out, fmt.Sprintf("omitted: %s in inlined or interpreted copies of the method, whose calls are "+
			"not counted", v.amount(v.leftOut.values[v.main])), v.opts.Width)
	}
	if v.recursive {
		layout.Fold(out, "The method calls itself: each level counts as a call.", v.opts.Width)
	}
	return layout.Flush(out, "time per call")
}
