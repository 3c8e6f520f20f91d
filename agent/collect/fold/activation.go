package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// An activation is a raw frame in the form of cct.Chain: the method, which is the frame without the
// place in it; the place; and its depth on the stack.
type activation = cct.Activation[guest.RawFrame, uint32]

type chainLink = cct.Link[guest.RawFrame, uint32]

// activate splits a frame. The code of stubs and native frames is not known: a leaf keeps only its
// kind, as on the kernel side, and a return address is a method of its own. Such frames have no
// epoch, because the kernel side, which decides what is known, does not know theirs.
func activate(r guest.RawFrame, depth uint32) activation {
	leaf := r.Kind == guest.RawExact
	a := activation{Method: r, Depth: depth}
	a.Method.Kind = guest.RawReturn
	switch r.Frame.Kind() {
	case bpf.FrameJIT:
		a.Method.Frame, a.Site = r.Frame&^0xffffffff, uint32(r.Frame)
	case bpf.FrameInterpreted:
		a.Method.Frame, a.Site = r.Frame&^0xffff, uint32(r.Frame)&0xffff
	default:
		a.Method.Epoch = 0
		if leaf {
			a.Method.Frame = bpf.Frame(r.Frame.Kind()) << 60
		}
	}
	if leaf {
		a.Site = 0
	}
	return a
}

// callerFrame returns the frame of an activation that is not the leaf.
func callerFrame(a activation) guest.RawFrame {
	r := a.Method
	r.Frame |= bpf.Frame(a.Site)
	return r
}

// unreached stands for everything above the outermost frame of a walk that ended early.
func unreached(end bpf.WalkEnd) activation {
	return activation{Method: guest.RawFrame{Kind: guest.RawNothing, End: end}}
}

func isUnreached(r guest.RawFrame) bool { return r.Kind == guest.RawNothing }

// activations appends the user frames of a stack, innermost first, as far as their depths are
// known. It reports whether a chain may learn them: frames of a VM that has ended must not be
// learned.
func activations(buf []activation, user []guest.RawFrame, depths []uint32) ([]activation, bool) {
	for i, r := range user {
		if r.Kind == guest.RawStale || r.Kind == guest.RawNothing {
			return buf, false
		}
		end := r.End
		r.End = 0
		var depth uint32
		if i < len(depths) {
			depth = depths[i]
		}
		buf = append(buf, activate(r, depth))
		if end.Truncated() {
			buf = append(buf, unreached(end))
		}
	}
	return buf, len(buf) > 0
}

// callers appends the frames of activations that are not leaves. The marker above the outermost one
// becomes the end of the last frame.
func callers(buf []guest.RawFrame, above []activation) []guest.RawFrame {
	for _, a := range above {
		if isUnreached(a.Method) {
			if len(buf) > 0 {
				buf[len(buf)-1].End = a.Method.End
			}
			break
		}
		buf = append(buf, callerFrame(a))
	}
	return buf
}

// linkOf returns the link at the top of a stack.
func linkOf(stack []activation) chainLink {
	l := chainLink{Leaf: stack[0]}
	if len(stack) > 1 && !isUnreached(stack[1].Method) {
		l.Caller = stack[1]
	}
	return l
}
