package fold

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Waker is who ended a wait.
type Waker struct {
	// Kernel is what the kernel was at, if it was no thread of a program: cause.Timer, …; then
	// there is nothing else.
	Kernel   string
	Process  *Process // nil if it is not profiled
	PID, TID uint32
	Comm     string // name of the process
	Thread   string
	Epoch    uint32
	Stack    []guest.RawFrame // innermost first; without the user's frames if the process is not profiled
}

// maxWakers bounds the wakers of one process and window, each about 150 bytes.
const maxWakers = 1 << 16

// wakerID is the number of a waker in wakers, from 1; 0 if there is none.
type wakerID uint32

// wakers are those who ended the waits of a process in a window.
type wakers struct {
	ids  map[knownWaker]wakerID
	list []namedWaker // by id - 1

	// Stacks of wakers whose frames this process names: its own, and those of processes that are
	// not profiled.
	tree Tree

	unknown EventSums // waits of unknown wakers
}

// A knownWaker is what distinguishes wakers.
type knownWaker struct {
	process *Process // the process that names the frames
	tree    *Tree    // tree that has the stack
	context cct.NodeID
	pid     uint32
	comm    string // "" for the process that waited
	thread  string
	kernel  string
}

// A namedWaker has the frames that a profile shows, outermost first.
type namedWaker struct {
	knownWaker
	stack []symbol.Symbol
}

// addWaker returns the number of the waker of a wait of p in its events of a kind, with these sums.
func (w *Window) addWaker(s *State, p *Process, kind profile.EventKind, by *Waker, sums *EventSums) wakerID {
	r := &w.EventSet(p).ByKind(kind).wakers
	if by == nil {
		r.unknown.Add(sums)
		return 0
	}
	if by.Kernel != "" {
		return r.add(knownWaker{process: p, kernel: by.Kernel}, sums)
	}
	key := knownWaker{process: p, pid: by.PID, thread: cmp.Or(by.Thread, "[unknown]")}
	if int(by.PID) != p.PID {
		key.comm = by.Comm
	}
	stack := by.Stack
	if by.Process != nil && w.Wants(by.Process.PID) {
		key.process = by.Process
	} else {
		stack = stack[:kernelFrames(stack)]
	}
	key.tree = &w.EventSet(key.process).ByKind(kind).wakers.tree
	if key.tree.Limit == 0 {
		key.tree.Limit = maxEventContexts
	}
	before := key.tree.Len()
	key.context = key.tree.Add(stack, 1)
	if key.tree.Len() != before {
		s.Want(key.process, stack, by.Epoch)
	}
	return r.add(key, sums)
}

// add returns the number of a waker of a wait with these sums; 0 if there is no room.
func (r *wakers) add(key knownWaker, sums *EventSums) wakerID {
	id := r.ids[key]
	if id != 0 {
		return id
	}
	if len(r.list) >= maxWakers {
		r.unknown.Add(sums)
		return 0
	}
	if r.ids == nil {
		r.ids = map[knownWaker]wakerID{}
	}
	r.list = append(r.list, namedWaker{knownWaker: key})
	id = wakerID(len(r.list))
	r.ids[key] = id
	return id
}

// kernelFrames is how many of a stack's frames are the kernel's, which are its innermost ones.
func kernelFrames(stack []guest.RawFrame) int {
	if i := slices.IndexFunc(stack, func(r guest.RawFrame) bool { return r.Kind != guest.RawKernel }); i >= 0 {
		return i
	}
	return len(stack)
}

// frames calls f for every frame that this process names.
func (r *wakers) frames(f func(guest.RawFrame)) {
	for id, n := range r.tree.Nodes() {
		if id != cct.Root {
			f(n.Key)
		}
	}
}

// NameWakers names those who ended waits, which may be of other processes. It comes before Profile,
// and without names of any process being held.
func (s *EventSet) NameWakers() {
	for _, kind := range [...]profile.EventKind{profile.OffCPU, profile.Locks} {
		if r := s[kind]; r != nil {
			r.wakers.nameAll()
		}
	}
}

// nameAll names all of them, those of one process after the other.
func (r *wakers) nameAll() {
	list := r.list
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return Earlier(list[a].process, list[b].process) })
	for len(order) > 0 {
		of := list[order[0]].process
		names := of.Names()
		n := 0
		for n < len(order) && list[order[n]].process == of {
			list[order[n]].name(names)
			n++
		}
		names.Close()
		order = order[n:]
	}
}

// name names the waker's frames.
func (n *namedWaker) name(names guest.Names) {
	if n.kernel != "" {
		n.stack = []symbol.Symbol{guest.Marker(n.label())}
		return
	}
	for at := n.context; at != cct.Root; {
		node := n.tree.Node(at)
		for _, f := range names.Lookup(node.Key).Symbols {
			if v := f.Value(); v.Inlined { // what a frame is inlined in is not what it is next to
				v.Inlined = false
				f = symbol.Intern(v)
			}
			n.stack = append(n.stack, f)
		}
		at = node.Parent
	}
	slices.Reverse(n.stack)
}

// label is what a profile calls the waker.
func (n *namedWaker) label() string {
	if n.kernel != "" {
		return "[" + n.kernel + "]"
	}
	return n.thread
}

// marker is the frame between the wait and the waker.
func (n *namedWaker) marker() symbol.Symbol {
	switch {
	case n.kernel != "":
		return guest.Marker(profile.WokenBy + "the kernel]")
	case n.comm != "":
		return guest.Marker(profile.WokenBy + n.comm + ": " + threadGroup(n.thread) + "]")
	}
	return guest.Marker(profile.WokenBy + threadGroup(n.thread) + "]")
}

// name gives a wait the labels of its waker, and returns its stack with the waker's: innermost
// first, the waker's outermost frame comes before everything else.
func (r *wakers) name(key *EventKey, stack []symbol.Symbol) []symbol.Symbol {
	id := key.waker
	key.waker = 0
	if id == 0 {
		return stack
	}
	by := &r.list[id-1]
	key.Class = by.label()
	if by.comm != "" {
		key.Field, key.Offset = by.comm, int32(by.pid)
	}
	return slices.Concat(by.stack, []symbol.Symbol{by.marker()}, stack)
}

// unknownWakers is a note on waits of unknown wakers; it is empty if there are none.
func unknownWakers(sums *EventSums) string {
	if sums.Events == 0 {
		return ""
	}
	length := time.Duration(sums.Values[profile.OffCPU.Main()])
	return fmt.Sprintf("the waker of %d recorded waits (%v in total) is unknown: its record was lost, the wait had "+
		"just begun, or the kernel's functions have no names",
		sums.Events, length.Round(max(length/100, time.Microsecond)))
}

// threadGroup is what threads that do the same work have in common: their names with a star for the
// number at the end.
func threadGroup(thread string) string {
	stem := strings.TrimRight(thread, "0123456789")
	if stem == thread || stem == "" {
		return thread
	}
	return stem + "*"
}
