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
