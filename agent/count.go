package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A contextCount counts the samples of one thread in one window by how their contexts were found.
type contextCount struct {
	walked, linked uint64
	placed         [profile.Certainties]uint64 // linked samples
	checked        uint64
	right          [len(profile.ContextLevels)]uint64
}

func (n *contextCount) add(other *contextCount) {
	n.walked += other.walked
	n.linked += other.linked
	n.checked += other.checked
	for i, v := range other.placed {
		n.placed[i] += v
	}
	for i, v := range other.right {
		n.right[i] += v
	}
}

// check counts linked samples whose context was compared with a walk.
func (n *contextCount) check(weight uint64, right [len(profile.ContextLevels)]bool) {
	n.checked += weight
	for i, ok := range right {
		if ok {
			n.right[i] += weight
		}
	}
}
