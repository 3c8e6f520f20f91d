package exact

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Recording is the calls of one process between two moments. It is immutable.
type Recording struct {
	Threads []Thread // in the order of their first calls
	Graph   *Graph
	Losses  Losses
	Calls   uint64 // calls that were made
	Returns uint64 // returns that were seen
	Objects uint64 // objects that were allocated, if they are counted
}

// A Thread is one thread of a Recording.
type Thread struct {
	TID   int
	Name  string // cut at 15 bytes, hostile
	Start uint64 // ns, CLOCK_BOOTTIME
	// Complete says that the thread started during the recording. Otherwise its contexts begin at
	// the marker BeforeRecording.
	Complete bool
	// Tree counts calls: Self of a node is how often its context was entered. Calls whose context
	// had no room are below the marker Overflow, each at its deepest known context.
	Tree *cct.Tree[Method]
	// Allocations are the objects that the thread allocated, by context and class.
	Allocations []Allocation
}

// An Allocation is how many objects of a class were allocated in a context, and their size.
type Allocation struct {
	Context        cct.NodeID // in the thread's tree; its root if the thread was in no method
	Class          Class
	Objects, Bytes uint64
}

// A Class is a class as the VM knows it while it is loaded.
type Class struct {
	Addr  uint64 // address of the VM's Klass structure
	Epoch uint32 // as in Method
}

// A Graph has an edge for every pair of methods and call site.
type Graph = cct.Graph[Method, Site]

// A Site is a call site as the kernel side saw it.
type Site struct {
	// Frame is the return address of the callee; for an inlined callee, a place somewhere in the
	// code that contains it. 0 if unknown.
	Frame   bpf.Frame
	Epoch   uint32 // how many times the VM had unloaded classes: interpreted frames are valid for one epoch
	Inlined bool
}

// Since returns what was recorded after an earlier snapshot of the same Recorder, nil for
// everything.
func (s *Snapshot) Since(earlier *Snapshot) *Recording {
	if earlier == nil {
		earlier = &Snapshot{}
	}
	counts := s.counts
	for i := range counts {
		counts[i] -= earlier.counts[i]
	}
	return &Recording{
		Threads: s.trees(earlier), Graph: s.graph(earlier), Losses: newLosses(&counts),
		Calls: counts[bpf.ExactEntries], Returns: counts[bpf.ExactExits], Objects: counts[bpf.ExactAllocated],
	}
}

func (s *Snapshot) graph(earlier *Snapshot) *Graph {
	g := &Graph{Limit: max(len(s.edges), 1)}
	for e, n := range s.edges {
		if n -= earlier.edges[e]; n == 0 {
			continue
		}
		from := Method{Addr: e.Caller, Epoch: e.ClassEpoch}
		if e.Caller == 0 {
			from = Unknown
		}
		g.Add(cct.Edge[Method, Site]{
			Caller: from,
			Site:   Site{Frame: bpf.Frame(e.Site), Epoch: e.ClassEpoch, Inlined: e.Inlined != 0},
			Callee: Method{Addr: e.Callee, Epoch: e.ClassEpoch},
		}, float64(n))
	}
	return g
}

// trees returns the threads that made calls since earlier.
func (s *Snapshot) trees(earlier *Snapshot) []Thread {
	b := newTreeBuilder(s.nodes, earlier.nodes)
	b.allocated(s.objects, earlier.objects)
	var threads []Thread
	for _, root := range b.roots {
		t := s.threads[root]
		thread := Thread{
			TID: int(s.nodes[root].Method), Name: name(t.Comm), Start: t.Start, Complete: t.Complete != 0,
		}
		thread.Tree, thread.Allocations = b.tree(root, thread.Complete)
		if thread.Tree.Total() > 0 || len(thread.Allocations) > 0 {
			threads = append(threads, thread)
		}
	}
	return threads
}

func name(comm [16]uint8) string {
	text, _, _ := strings.Cut(string(comm[:]), "\x00")
	return text
}

// Tree merges the trees of all threads.
func (r *Recording) Tree() *cct.Tree[Method] {
	limit := 1
	for _, t := range r.Threads {
		limit += t.Tree.Len()
	}
	all := &cct.Tree[Method]{Limit: limit}
	for _, t := range r.Threads {
		all.Merge(t.Tree)
	}
	return all
}
