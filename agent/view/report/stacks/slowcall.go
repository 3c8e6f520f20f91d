package stacks

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A SlowCall is a slow invocation as it is stored.
type SlowCall struct {
	Window       int64 // 0 if the profile has none
	Number       int64 // number of the call in the window
	Start        string
	Thread, End  string
	Took         float64 // ns
	ByCause      map[string]float64
	Samples      []*pprof.Sample
	Heaviest     *pprof.Sample
	HeaviestTime float64
}

// SlowCalls puts the parts of each invocation together, and returns the slowest, the slowest first.
func SlowCalls(s *Samples) []*SlowCall {
	type key struct {
		window, number, tid int64
		start               string
	}
	byNumber := map[key]*SlowCall{} // several files may each have a first one
	for sample, value := range s.All() {
		n := Number(sample, stored.LabelCall)
		window := Number(sample, stored.LabelWindow)
		of := key{window, n, Number(sample, stored.LabelTID), Label(sample, stored.LabelStart)}
		c := byNumber[of]
		if c == nil {
			c = &SlowCall{
				Window: window, Number: n, Start: Label(sample, stored.LabelStart),
				Thread: Label(sample, stored.LabelThread), End: Label(sample, stored.LabelEnd),
				ByCause: map[string]float64{},
			}
			byNumber[of] = c
		}
		time := float64(value)
		c.Took += time
		c.Samples = append(c.Samples, sample)
		c.ByCause[cmp.Or(Label(sample, stored.LabelCause), stored.Unnamed)] += time
		if c.Heaviest == nil || time > c.HeaviestTime {
			c.Heaviest, c.HeaviestTime = sample, time
		}
	}
	calls := slices.SortedFunc(maps.Values(byNumber), func(a, b *SlowCall) int {
		return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Window, b.Window), cmp.Compare(a.Number, b.Number))
	})
	return calls[:min(len(calls), profile.MaxSlowCalls)]
}

// Largest are its causes, the largest first.
func (c *SlowCall) Largest() []string {
	return slices.SortedFunc(maps.Keys(c.ByCause), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.ByCause[b], c.ByCause[a]), strings.Compare(a, b))
	})
}

// FollowedMethod is the method whose invocations were followed, and how many there were; "" if the
// profile does not say.
func FollowedMethod(p *pprof.Profile) (method string, calls float64) {
	if m, err := stored.MetadataOf(p); err == nil {
		method = m.Followed
	}
	if !HasCalls(p) {
		return method, 0
	}
	s, err := NewSamples(p, stored.TypeCalls)
	if err != nil {
		return method, 0
	}
	for sample, value := range s.All() {
		if Label(sample, stored.LabelEngine) == stored.EngineCount {
			method = cmp.Or(method, s.Edge(sample).Callee.Name)
			calls += float64(value)
		}
	}
	return method, calls
}

// NamesFrom are the frames of a stack from a method on, outermost first; from its root if the
// method is not in it. With own they end at the application's innermost method, unless it has none.
func (s *Samples) NamesFrom(sample *pprof.Sample, from string, own bool) (names []string) {
	all := s.AppendFrames(nil, sample)
	for _, f := range all {
		if len(names) > 0 || !own || !f.Native && f.Name[0] != '[' && !f.Library {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		for _, f := range all {
			names = append(names, f.Name)
		}
	}
	slices.Reverse(names)
	return names[max(slices.Index(names, from), 0):] // the outermost one
}
