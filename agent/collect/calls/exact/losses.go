package exact

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Losses are what a Recording lacks; all 0 means that it is complete. Calls without room in the
// maps are still counted: Calls of a Recording is the sum of its trees and NoThread.
type Losses struct {
	NoThread uint64 // calls of threads without room: they are in no tree
	NoNode   uint64 // calls whose context had no room
	TooDeep  uint64 // calls deeper than bpf.ExactDepth frames
	NoEdge   uint64 // calls whose edge had no room
	NoMethod uint64 // methods that were not announced, and have no name
	NoRecord uint64 // threads without a name
	Unplaced uint64 // calls and returns from code that is not recognised
	Unwound  uint64 // frames that ended without a return
	Stray    uint64 // returns from methods that were never entered
	Before   uint64 // returns from methods that were entered before recording

	Uncounted uint64 // allocated objects without a class, or whose context and class had no room
}

func newLosses(c *bpf.ExactCounts) Losses {
	return Losses{
		NoThread: c[bpf.ExactNoThread], NoNode: c[bpf.ExactNoNode], TooDeep: c[bpf.ExactTooDeep],
		NoEdge: c[bpf.ExactNoEdge], NoMethod: c[bpf.ExactNoMethod], NoRecord: c[bpf.ExactNoRecord],
		Unplaced: c[bpf.ExactUnplaced], Unwound: c[bpf.ExactUnwound], Stray: c[bpf.ExactStray],
		Before: c[bpf.ExactBefore], Uncounted: c[bpf.ExactUncounted],
	}
}

// Notes describe the losses for people, one sentence each.
func (l Losses) Notes() []string {
	var notes []string
	for _, loss := range []struct {
		n           uint64
		thing, text string
	}{
		{l.NoThread, "call", "missing in the trees, because too many threads made calls."},
		{l.NoNode, "call", "exceeded the limit of contexts: counted as [overflow] below the deepest known context."},
		{l.TooDeep, "call", fmt.Sprintf("deeper than %d frames: counted as [overflow] at that depth.", bpf.ExactDepth)},
		{l.NoEdge, "call", "missing in the call graph, because it is full."},
		{l.NoMethod, "method", "without a name, because the announcement was lost."},
		{l.NoRecord, "thread", "without a name."},
		{l.Unplaced, "time", "a call or return came from code that cannot be decoded: contexts may be wrong."},
		{l.Unwound, "frame", "ended without a return, like those of virtual threads, and of methods that C1 inlined " +
			"and an " +
			"exception left; later calls may appear below. For C1, start the JVM with " + NoC1Inlining + "."},
		{l.Stray, "return", "from a frame without a recorded entry."},
		{l.Uncounted, "allocated object", "not counted by context, because its class is unknown or there is no room."},
	} {
		if loss.n > 0 {
			notes = append(notes, stored.Plural(int(loss.n), loss.thing)+" "+loss.text)
		}
	}
	return notes
}
