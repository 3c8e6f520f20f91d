package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

type rawTree = cct.Tree[target.RawFrame]

// A threadKey tells apart what a window has of a thread: a tid, which ends at 4 Mi, and whether the thread's VM had stopped
// its Java threads.
type threadKey uint32

const stoppedThread threadKey = 1 << 31

func keyOf(tid uint32, stopped bool) threadKey {
	if stopped {
		return threadKey(tid) | stoppedThread
	}
	return threadKey(tid)
}

func (k threadKey) tid() int { return int(k &^ stoppedThread) }

func (k threadKey) stopped() bool { return k&stoppedThread != 0 }

type rawThread struct {
	comm    [16]byte                     // its name at the last sample: a thread that starts still has its parent's
	trees   [profile.Certainties]rawTree // whole stacks, by Certainty
	waiting rawTree                      // stacks of which only a link is known, their depths outermost
	links   rawTree                      // links of all samples, if those have depths
	count   contextCount
}

// frames calls f for every frame of the thread's contexts.
func (t *rawThread) frames(f func(target.RawFrame)) {
	each := func(tree *rawTree) {
		for id, n := range tree.Nodes() {
			if id != cct.Root && n.Key.Kind != target.RawDepths {
				f(n.Key)
			}
		}
	}
	for i := range t.trees {
		each(&t.trees[i])
	}
	each(&t.waiting)
}

// fold adds a sample to what the window has of a thread. It reports whether there are frames that are new to the window. Without
// room for more contexts the sample counts for the deepest one of its callers that is there.
func (t *rawThread) fold(s taken, room bool) (fresh bool) {
	copy(t.comm[:], s.Comm)
	if s.Depths != nil {
		if key := linkKey(s); key != nil {
			limit(&t.links, room)
			t.links.Add(append(key, depthsOf(s.Sample)), 1)
		}
	}
	tree := &t.trees[s.certainty]
	stack := s.stack
	if s.link {
		tree = &t.waiting
		stack = append(stack, depthsOf(s.Sample))
	}
	limit(tree, room)
	n := tree.Len()
	tree.AddNew(stack, s.fresh, 1)
	switch {
	case s.link:
		t.count.linked++ // placed when the window closes
	case s.partial:
		t.count.linked++
		t.count.placed[s.certainty]++
		t.count.check(1, s.right)
	default:
		t.count.walked++
	}
	return tree.Len() != n
}

// limit ends the growth of a tree, for good, if there is no room for more contexts.
func limit(t *rawTree, room bool) {
	if !room {
		t.Limit = max(t.Len(), 1) // 0 would be the default
	}
}

// contexts is how many the thread's trees have.
func (t *rawThread) contexts() int {
	n := t.waiting.Len() + t.links.Len()
	for i := range t.trees {
		n += t.trees[i].Len()
	}
	return n
}

// linkKey is the link of a sample without what differs from sample to sample: the leaf's place and the kernel's frames. It is
// nil if the sample is of no code that is known.
func linkKey(s taken) []target.RawFrame {
	user := s.stack[min(len(s.Kernel), len(s.stack)):]
	if len(user) == 0 || user[0].Kind != target.RawExact {
		return nil
	}
	key := append(make([]target.RawFrame, 0, 3), codeOf(user[0]))
	switch {
	case len(user) > 1:
		key = append(key, user[1])
		key[1].End = 0
	case user[0].End.Truncated():
		key = append(key, target.RawFrame{Kind: target.RawNothing, End: user[0].End})
	}
	return key
}
