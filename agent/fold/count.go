package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A Count counts the samples of one thread in one window by how their contexts were found.
type Count struct {
	Walked, Linked uint64
	Placed         [profile.Certainties]uint64        // linked samples, by the certainty of the context that they were given
	Checked        uint64                             // linked samples whose context was compared with a walk
	Right          [len(profile.ContextLevels)]uint64 // of those, by profile.ContextLevels
}

// Add adds the counts of another thread.
func (n *Count) Add(other *Count) {
	n.Walked += other.Walked
	n.Linked += other.Linked
	n.Checked += other.Checked
	for i, v := range other.Placed {
		n.Placed[i] += v
	}
	for i, v := range other.Right {
		n.Right[i] += v
	}
}

// check counts linked samples whose context was compared with a walk.
func (n *Count) check(weight uint64, right [len(profile.ContextLevels)]bool) {
	n.Checked += weight
	for i, ok := range right {
		if ok {
			n.Right[i] += weight
		}
	}
}

// rightCallers reports whether a context that was found has the callers of the one that was walked, by ContextLevels.
func rightCallers[F any](found, walked []F, same func(a, b F) bool) (right [len(profile.ContextLevels)]bool) {
	for i, levels := range profile.ContextLevels {
		right[i] = SameCallers(found, walked, levels, same)
	}
	return right
}

// SameCallers reports whether two stacks, innermost frame first, have the same callers for so many levels, 0 for all, or to
// the outermost frame if that is nearer.
func SameCallers[F any](a, b []F, levels int, same func(a, b F) bool) bool {
	for i := 1; levels == 0 || i <= levels; i++ {
		if i >= len(a) || i >= len(b) {
			return len(a) == len(b)
		}
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameCall compares two callers, wherever they stand.
func sameCall(a, b activation) bool { return a.Method == b.Method && a.Site == b.Site }
