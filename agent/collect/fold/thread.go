package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Tree is a calling context tree of frames that have no names yet.
type Tree = cct.Tree[guest.RawFrame]

// A ThreadKey identifies a thread under one of its names in a window: by its tid, which is less
// than 4 Mi, by the number of the name in the window, and by whether its VM had stopped its Java
// threads.
type ThreadKey uint32

const (
	stoppedThread ThreadKey = 1 << 31

	nameShift = 24
	// maxThreadNames bounds the names of a thread in a window. What it does under further ones
	// counts for its last name.
	maxThreadNames = 16
)

// keyOf returns the key of a thread under its nth name, from 0.
func keyOf(tid uint32, nth int, stopped bool) ThreadKey {
	k := ThreadKey(tid) | ThreadKey(nth)<<nameShift
	if stopped {
		k |= stoppedThread
	}
	return k
}

// TID is the thread's id.
func (k ThreadKey) TID() int { return int(k & (1<<nameShift - 1)) }

// nth is the number of the thread's name.
func (k ThreadKey) nth() int { return int(k &^ stoppedThread >> nameShift) }

// A comm is the kernel's name of a thread, which ends with a zero byte unless it has 16.
type comm [16]byte

func commOf(b []byte) (c comm) {
	copy(c[:], b)
	return c
}

// Stopped reports whether the thread's VM had stopped its Java threads.
func (k ThreadKey) Stopped() bool { return k&stoppedThread != 0 }

// A Thread is the samples of one thread in a window, while it had one name.
type Thread struct {
	Comm    comm
	Trees   [profile.Certainties]Tree // whole stacks, by Certainty
	Waiting Tree                      // stacks known by a link only, with their depths as outermost frame
	Links   Tree                      // links of all samples, if those have depths
	Count   Count
	known   knownCallers
}

// maxKnownCallers bounds those of a thread, which are forgotten when there are more. Each takes
// about 20 bytes.
const maxKnownCallers = 1 << 14

// knownCallers are nodes of a thread's tree of walked stacks by what identifies the stack of the
// node: Sample.callers.
type knownCallers struct {
	nodes      map[uint64]cct.NodeID
	attachment uint32 // the VM of the process for which this holds
	code       *guest.JITCode
}

// nodesFor returns the nodes for a sample.
func (k *knownCallers) nodesFor(s *Sample) map[uint64]cct.NodeID {
	if k.nodes == nil || k.attachment != s.attachment || !k.code.Marks(s.code) || len(k.nodes) >= maxKnownCallers {
		*k = knownCallers{map[uint64]cct.NodeID{}, s.attachment, s.code}
	}
	return k.nodes
}

// Frames calls f for every frame of the thread's contexts.
func (t *Thread) Frames(f func(guest.RawFrame)) {
	each := func(tree *Tree) {
		for id, n := range tree.Nodes() {
			if id != cct.Root && n.Key.Kind != guest.RawDepths {
				f(n.Key)
			}
		}
	}
	for i := range t.Trees {
		each(&t.Trees[i])
	}
	each(&t.Waiting)
}

// Fold adds a sample to a thread of the window. It returns how many contexts that made, which are
// those of the innermost frames. Without room for more contexts, the sample counts for its deepest
// caller that has a node.
func (t *Thread) Fold(s *Sample, room bool) (fresh int) {
	if s.Depths != nil {
		if key := linkKey(s); key != nil {
			limit(&t.Links, room)
			t.Links.Add(append(key, depthsOf(s.Sample)), 1)
		}
	}
	tree := &t.Trees[s.certainty]
	stack := s.Stack
	if s.link {
		tree = &t.Waiting
		stack = append(stack, depthsOf(s.Sample))
	}
	limit(tree, room)
	n := tree.Len()
	if key, ok := s.callers(); ok {
		t.foldWalked(tree, s, key)
	} else {
		tree.AddNew(stack, s.fresh, 1)
	}
	switch {
	case s.link:
		t.Count.Linked++ // placed when the window closes
	case s.partial:
		t.Count.Linked++
		t.Count.Placed[s.certainty]++
		t.Count.check(1, s.right)
	default:
		t.Count.Walked++
	}
	return tree.Len() - n
}

// foldWalked adds a sample whose callers have a key. If these were met before, their frames are not
// looked at.
func (t *Thread) foldWalked(tree *Tree, s *Sample, key uint64) {
	nodes, inner := t.known.nodesFor(s), len(s.Kernel)+1
	if node, ok := nodes[key]; ok {
		tree.AddUnder(node, s.Stack[:inner], 1)
		return
	}
	s.complete()
	id := tree.Add(s.Stack, 1)
	if tree.Node(id).Depth < len(s.Stack) {
		return // the tree is full
	}
	for range inner {
		id = tree.Node(id).Parent
	}
	nodes[key] = id
}

// limit permanently stops the growth of a tree if there is no room for more contexts.
func limit(t *Tree, room bool) {
	if !room {
		t.Limit = max(t.Len(), 1) // 0 would be the default
	}
}

// ofGuest reports whether a sample has a frame of a VM's code.
func (t *Thread) ofGuest() bool {
	found := false
	t.Frames(func(r guest.RawFrame) {
		found = found || r.Kind <= guest.RawExact && guestCode(r.Frame)
	})
	return found
}

// Contexts returns the number of contexts in the thread's trees.
func (t *Thread) Contexts() int {
	n := t.Waiting.Len() + t.Links.Len()
	for i := range t.Trees {
		n += t.Trees[i].Len()
	}
	return n
}

// linkKey is the link of a sample without what differs from sample to sample: the leaf's place and
// the kernel's frames. It is nil if the code of the sample is unknown.
func linkKey(s *Sample) []guest.RawFrame {
	user := s.Stack[min(len(s.Kernel), len(s.Stack)):]
	if len(user) == 0 || user[0].Kind != guest.RawExact {
		return nil
	}
	key := append(make([]guest.RawFrame, 0, 3), codeOf(user[0]))
	switch {
	case len(user) > 1:
		key = append(key, user[1])
		key[1].End = 0
	case user[0].End.Truncated():
		key = append(key, guest.RawFrame{Kind: guest.RawNothing, End: user[0].End})
	}
	return key
}
