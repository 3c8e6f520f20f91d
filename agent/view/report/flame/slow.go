package flame

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

const (
	// maxSlowStacks and maxSlowFrames bound what the pages show of a slow call: its heaviest
	// stacks, and of each the innermost frames.
	maxSlowStacks = 8
	maxSlowFrames = 48
)

// flameSlow is the slowest invocations of a method, of some windows.
type flameSlow struct {
	method string
	counts map[flameOwner]float64 // how many there were
	calls  []flameSlowCall        // the slowest first
}

// A flameOwner is a process.
type flameOwner struct {
	pid     int64
	service string // as Process has it
}

// A flameSlowCall is one invocation. Its JSON form is a part of that of a Graph.
type flameSlowCall struct {
	owner   flameOwner
	Process string       `json:"process"`
	TID     int64        `json:"tid"`
	Thread  string       `json:"thread"`
	Group   string       `json:"group"` // group of threads
	Start   float64      `json:"start"` // ms since 1970
	Took    float64      `json:"took"`  // ns
	End     string       `json:"end"`
	Causes  []flameCause `json:"causes"` // the largest first
	Stacks  []flameStack `json:"stacks"` // the heaviest
}

type flameCause struct {
	Cause string  `json:"cause"`
	Time  float64 `json:"time"` // ns
}

type flameStack struct {
	flameCause
	Frames []string `json:"frames"` // outermost first
}

// readSlow adds the slowest calls, if the profile has such.
func (f *Graph) readSlow(p *pprof.Profile) error {
	if stacks.TypeIndex(p, stored.TypeSlow) < 0 {
		return nil
	}
	s, err := stacks.NewSamples(p, stored.TypeSlow)
	if err != nil {
		return err
	}
	f.slow = &flameSlow{counts: make(map[flameOwner]float64)}
	f.slow.method, _ = stacks.FollowedMethod(p)
	counted, err := stacks.NewSamples(p, stored.TypeCalls)
	if err != nil {
		return err
	}
	for sample, value := range counted.All() {
		if stacks.Label(sample, stored.LabelEngine) == stored.EngineCount {
			f.slow.counts[ownerOf(sample)] += float64(value)
		}
	}
	for _, c := range stacks.SlowCalls(s) {
		f.slow.calls = append(f.slow.calls, newFlameSlowCall(s, c, f.slow.method))
	}
	return nil
}

// ownerOf is the process of a sample.
func ownerOf(sample *pprof.Sample) flameOwner {
	return flameOwner{stacks.Number(sample, stored.LabelPID), cmp.Or(stacks.Label(sample, stored.LabelService),
		stacks.Label(sample, stored.LabelComm), stored.Unnamed)}
}

// newFlameSlowCall is a slow call as the pages show it.
func newFlameSlowCall(s *stacks.Samples, c *stacks.SlowCall, method string) flameSlowCall {
	first := c.Samples[0]
	thread := cmp.Or(c.Thread, stored.Unnamed)
	out := flameSlowCall{owner: ownerOf(first), Process: laneProcess(ownerOf(first).service, ownerOf(first).pid),
		TID: stacks.Number(first, stored.LabelTID), Thread: thread, Group: stored.ThreadGroup(thread),
		Took: c.Took, End: c.End, Causes: []flameCause{}, Stacks: []flameStack{}}
	if at, err := time.Parse(time.RFC3339Nano, c.Start); err == nil && at.Year() >= 1970 && at.Year() <= 9999 {
		out.Start = float64(at.UnixMicro()) / 1000
	}
	for _, name := range c.Largest() {
		out.Causes = append(out.Causes, flameCause{name, c.ByCause[name]})
	}
	samples := slices.Clone(c.Samples)
	slices.SortStableFunc(samples, func(a, b *pprof.Sample) int { return cmp.Compare(s.Value(b), s.Value(a)) })
	for _, sample := range samples[:min(len(samples), maxSlowStacks)] {
		names := s.NamesFrom(sample, method, false)
		out.Stacks = append(out.Stacks, flameStack{
			flameCause{cmp.Or(stacks.Label(sample, stored.LabelCause), stored.Unnamed), float64(s.Value(sample))},
			names[max(0, len(names)-maxSlowFrames):],
		})
	}
	return out
}

// filter returns the calls of some processes; nil if f is nil.
func (f *flameSlow) filter(keep func(flameOwner) bool) *flameSlow {
	if f == nil {
		return nil
	}
	out := &flameSlow{method: f.method, counts: maps.Clone(f.counts)}
	maps.DeleteFunc(out.counts, func(o flameOwner, _ float64) bool { return !keep(o) })
	for _, c := range f.calls {
		if keep(c.owner) {
			out.calls = append(out.calls, c)
		}
	}
	return out
}

// merged is the slowest calls of both; either may be nil.
func (f *flameSlow) merged(o *flameSlow) *flameSlow {
	if f == nil || o == nil {
		return cmp.Or(f, o)
	}
	out := &flameSlow{method: cmp.Or(f.method, o.method), counts: maps.Clone(f.counts),
		calls: slices.Concat(f.calls, o.calls)}
	for owner, n := range o.counts {
		out.counts[owner] += n
	}
	slices.SortStableFunc(out.calls, func(a, b flameSlowCall) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Start, b.Start))
	})
	out.calls = out.calls[:min(len(out.calls), profile.MaxSlowCalls)]
	return out
}

// slowDocument is its JSON form.
type slowDocument struct {
	Method string          `json:"method"`
	Calls  float64         `json:"calls"` // all of the method
	List   []flameSlowCall `json:"list"`
}

func (f *flameSlow) document() *slowDocument {
	if f == nil {
		return nil
	}
	d := &slowDocument{Method: f.method, List: append([]flameSlowCall{}, f.calls...)}
	for _, n := range f.counts {
		d.Calls += n
	}
	d.Calls = math.Round(d.Calls)
	return d
}
