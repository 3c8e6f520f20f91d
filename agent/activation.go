package agent

import (
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// An activation is a raw frame as cct.Chain takes it: the method, which is the frame without the place in it; the place;
// and where on the stack it stands.
type activation = cct.Activation[rawFrame, uint32]

type chainLink = cct.Link[rawFrame, uint32]

// activate splits a frame. Of stubs and native code it is not known which code they belong to: the leaf has only its
// kind, as on the kernel side, and a return address is a method of its own. It has no epoch: the kernel side, which says
// what is known, does not know of those.
func activate(r rawFrame, depth uint32) activation {
	leaf := r.kind == rawExact
	a := activation{Method: r, Depth: depth}
	a.Method.kind = rawReturn
	switch r.frame.Kind() {
	case bpf.FrameJIT:
		a.Method.frame, a.Site = r.frame&^0xffffffff, uint32(r.frame)
	case bpf.FrameInterpreted:
		a.Method.frame, a.Site = r.frame&^0xffff, uint32(r.frame)&0xffff
	default:
		a.Method.epoch = 0
		if leaf {
			a.Method.frame = bpf.Frame(r.frame.Kind()) << 60
		}
	}
	if leaf {
		a.Site = 0
	}
	return a
}

// callerFrame is the frame of an activation that is not the leaf.
func callerFrame(a activation) rawFrame {
	r := a.Method
	r.frame |= bpf.Frame(a.Site)
	return r
}

// unreached stands above the outermost frame of a walk that ended early.
func unreached(end bpf.WalkEnd) activation {
	return activation{Method: rawFrame{kind: rawNothing, end: end}}
}

func isUnreached(r rawFrame) bool { return r.kind == rawNothing }

// activations appends the user frames of a stack, innermost first, as far as their depths are known. It tells whether a
// chain may learn them: frames of a VM that is gone say nothing.
func activations(buf []activation, user []rawFrame, depths []uint32) ([]activation, bool) {
	for i, r := range user {
		if r.kind == rawStale || r.kind == rawNothing {
			return buf, false
		}
		end := r.end
		r.end = 0
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

// callers appends the frames of activations that are no leaves. What stands above the outermost one becomes the end of the
// last frame.
func callers(buf []rawFrame, above []activation) []rawFrame {
	for _, a := range above {
		if isUnreached(a.Method) {
			if len(buf) > 0 {
				buf[len(buf)-1].end = a.Method.end
			}
			break
		}
		buf = append(buf, callerFrame(a))
	}
	return buf
}

// linkOf is the link at the top of a stack.
func linkOf(stack []activation) chainLink {
	l := chainLink{Leaf: stack[0]}
	if len(stack) > 1 && !isUnreached(stack[1].Method) {
		l.Caller = stack[1]
	}
	return l
}
