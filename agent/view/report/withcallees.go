package report

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

const (
	maxCandidates  = 128  // for withCallees: the stacks of frameworks have dozens of methods that are always there
	leastCandidate = 0.01 // share of all time
	passesOn       = 0.9  // share of a method's time spent in another one: then that one is the answer
)

// A candidateSet is some of the candidates.
type candidateSet [maxCandidates / 64]uint64

func (s *candidateSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s *candidateSet) add(i int)      { s[i/64] |= 1 << (i % 64) }

// withCallees returns the application's methods with the largest total, at most so many. It leaves
// out methods that spend nearly all of it in another one of them, such as main or the filters of a
// server: these are on every stack and say nothing.
func (v *view) withCallees(entries []cct.Entry[string], most int) []cct.Entry[string] {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e cct.Entry[string]) bool {
		guest := []string{profile.GuestCode.String(), stacks.Python, stacks.Compiled}
		return !slices.Contains(guest, v.kinds[e.Key]) || v.outside[e.Key] || e.Key[0] == '[' ||
			float64(e.Total) < leastCandidate*float64(v.tree.Total())
	})
	slices.SortStableFunc(entries, func(a, b cct.Entry[string]) int { return cmp.Compare(b.Total, a.Total) })
	entries = entries[:min(len(entries), maxCandidates)]
	candidates := make(map[string]int, len(entries))
	for i, e := range entries {
		candidates[e.Key] = i
	}

	// below[i] has the time in each candidate while i was on the stack above it. Of recursion the
	// outermost frame counts.
	below := make([][maxCandidates]uint64, len(entries))
	totals := v.tree.Totals()
	onPath := make([]candidateSet, v.tree.Len()+1) // by NodeID: the candidates from the root to that node
	for id, n := range v.tree.Nodes() {            // parents come first
		if id == cct.Root {
			continue
		}
		above := onPath[n.Parent]
		onPath[id] = above
		callee, ok := candidates[n.Key]
		if !ok || above.has(callee) {
			continue
		}
		onPath[id].add(callee)
		for word, set := range above {
			for ; set != 0; set &= set - 1 {
				below[64*word+bits.TrailingZeros64(set)][callee] += totals[id]
			}
		}
	}
	var chosen []cct.Entry[string]
	for i, e := range entries {
		if len(chosen) < most && float64(slices.Max(below[i][:])) < passesOn*float64(e.Total) {
			chosen = append(chosen, e)
		}
	}
	return chosen
}
