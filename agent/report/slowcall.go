package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// A slowCall is a slow invocation as it is stored.
type slowCall struct {
	window       int64 // 0 if the profile has none
	number       int64 // in the window
	start        string
	thread, end  string
	took         float64 // ns
	byCause      map[string]float64
	samples      []*pprof.Sample
	heaviest     *pprof.Sample
	heaviestTime float64
}

// slowCalls puts the parts of each invocation together, and returns the slowest, the slowest first.
func slowCalls(s *stacks.Samples) []*slowCall {
	type key struct {
		window, number, tid int64
		start               string
	}
	byNumber := map[key]*slowCall{} // several files may each have a first one
	for sample, value := range s.All() {
		n := stacks.Number(sample, stored.LabelCall)
		window := stacks.Number(sample, stored.LabelWindow)
		of := key{window, n, stacks.Number(sample, stored.LabelTID), stacks.Label(sample, stored.LabelStart)}
		c := byNumber[of]
		if c == nil {
			c = &slowCall{
				window: window, number: n, start: stacks.Label(sample, stored.LabelStart), thread: stacks.Label(sample, stored.LabelThread), end: stacks.Label(sample, stored.LabelEnd),
				byCause: map[string]float64{},
			}
			byNumber[of] = c
		}
		time := float64(value)
		c.took += time
		c.samples = append(c.samples, sample)
		c.byCause[cmp.Or(stacks.Label(sample, stored.LabelCause), stored.Unnamed)] += time
		if c.heaviest == nil || time > c.heaviestTime {
			c.heaviest, c.heaviestTime = sample, time
		}
	}
	calls := slices.SortedFunc(maps.Values(byNumber), func(a, b *slowCall) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.window, b.window), cmp.Compare(a.number, b.number))
	})
	return calls[:min(len(calls), profile.MaxSlowCalls)]
}

// largest are its causes, the largest first.
func (c *slowCall) largest() []string {
	return slices.SortedFunc(maps.Keys(c.byCause), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.byCause[b], c.byCause[a]), strings.Compare(a, b))
	})
}

// followedMethod is the method whose invocations were followed, and how many there were; "" if the profile does not say.
func followedMethod(p *pprof.Profile) (method string, calls float64) {
	if m, err := stored.MetadataOf(p); err == nil {
		method = m.Followed
	}
	if !stacks.HasCalls(p) {
		return method, 0
	}
	s, err := stacks.Of(p, stored.TypeCalls)
	if err != nil {
		return method, 0
	}
	for sample, value := range s.All() {
		if stacks.Label(sample, stored.LabelEngine) == stored.EngineCount {
			method = cmp.Or(method, s.Edge(sample).Callee.Name)
			calls += float64(value)
		}
	}
	return method, calls
}

// callNames are the frames of a stack from a method on, outermost first; from its root if the method is not in it. With own they end at the
// program's innermost method, unless it has none.
func callNames(s *stacks.Samples, sample *pprof.Sample, from string, own bool) (names []string) {
	all := s.AppendFrames(nil, sample)
	for _, f := range all {
		if len(names) > 0 || !own || !f.Native && f.Name[0] != '[' && !cause.Waits(f.Name) {
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
