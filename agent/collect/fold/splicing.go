package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A splicing completes partial walks (Whaley, Java Grande 2000, section 4): it keeps the stack of
// each thread's previous sample, as the kernel side does, in the same number of slots.
type splicing struct {
	kept   [keptStacks]keptStack
	buffer []guest.RawFrame
}

// keptStacks is the number of threads whose stacks are kept; KEPT_STACKS in partial.bpf.h.
const keptStacks = 1024

type keptStack struct {
	tid     uint32
	start   uint64 // start of the process, like exec
	exec    uint32
	serial  uint32           // number of the sample, 0 if nothing is kept
	missing int              // unknown outermost frames, as the sample that had them was lost
	user    []guest.RawFrame // the others, innermost first
}

// complete completes a sample. If check is set, the sample has its whole stack, which is compared
// with the result.
func (sp *splicing) complete(t *Sample, check bool) {
	inner, user := t.inner(), t.User()
	whole, fresh, ok := sp.splice(t.Sample, user)
	if check {
		t.right = rightCallers(whole, user, sameFrame)
	}
	t.partial = t.Shared != nil && t.Shared.Base != 0
	t.Stack = append(t.Stack[:inner], whole...)
	t.fresh = inner + fresh
	if !ok {
		t.certainty = profile.Unplaced
	}
}

// splice completes the user frames of a sample. It returns them, and how many of the innermost ones
// the thread's previous sample did not have. The last result is false if the sample with the other
// frames was lost.
//
// Without marks in the process's stack, an activation counts as the previous one if the same call
// site led to the same method. That is wrong for a method that was called again from there: so only
// calls that differ visibly count as new.
func (sp *splicing) splice(s *bpf.Sample, user []guest.RawFrame) (whole []guest.RawFrame, fresh int, ok bool) {
	if s.Shared == nil {
		return user, len(user), true // another thread's stack occupies the slot of its thread
	}
	k := &sp.kept[s.Tid%keptStacks]
	same := k.serial != 0 && k.tid == s.Tid && k.start == s.Start && k.exec == s.Exec
	missing := 0
	sp.buffer = append(sp.buffer[:0], user[:min(int(s.Shared.Own), len(user))]...)
	if s.Shared.Base != 0 {
		n := int(s.Shared.Frames)
		if same && k.serial == s.Shared.Base && n <= len(k.user)+k.missing {
			missing = min(n, k.missing)
			sp.append(k.user[len(k.user)-(n-missing):], s.ClassEpoch)
			if n == 0 {
				sp.end(k.end())
			}
		} else {
			missing = n
		}
		if missing > 0 {
			sp.end(bpf.EndKnown)
		}
	}
	fresh = len(sp.buffer)
	if same && missing == 0 && k.missing == 0 {
		fresh -= sharedFrames(sp.buffer, k.user)
	} else if missing > 0 {
		fresh = min(int(s.Shared.Own), len(sp.buffer))
	}
	k.tid, k.start, k.exec, k.serial, k.missing = s.Tid, s.Start, s.Exec, s.Shared.Serial, missing
	k.user = append(k.user[:0], sp.buffer...)
	return sp.buffer, fresh, missing == 0
}

// append adds frames that were already on the stack. They are still valid: classes with methods on
// the stack are not unloaded.
func (sp *splicing) append(base []guest.RawFrame, classEpoch uint32) {
	for _, r := range base {
		if r.Frame.Kind() == bpf.FrameInterpreted {
			r.Epoch = classEpoch
		}
		sp.buffer = append(sp.buffer, r)
	}
}

// end records why the frames end.
func (sp *splicing) end(why bpf.WalkEnd) {
	if n := len(sp.buffer); n > 0 {
		sp.buffer[n-1].End = why
	}
}

// end is the end of the walk that the outermost frame comes from.
func (k *keptStack) end() bpf.WalkEnd {
	if len(k.user) == 0 {
		return bpf.EndNone
	}
	return k.user[len(k.user)-1].End
}

// sharedFrames counts the outermost frames that two stacks have in common, including the first one
// that differs only in its place in the method.
func sharedFrames(a, b []guest.RawFrame) (n int) {
	for n < len(a) && n < len(b) {
		x, y := a[len(a)-1-n], b[len(b)-1-n]
		x.Epoch, y.Epoch = 0, 0
		if !sameFrame(x, y) {
			if codeOf(x) == codeOf(y) {
				n++
			}
			break
		}
		n++
	}
	return n
}

// codeOf returns the part of a frame that identifies its method, as far as the frame does.
func codeOf(r guest.RawFrame) guest.RawFrame {
	m := activate(r, 0).Method
	m.End = 0
	return m
}

// sameFrame compares frames of one stack at different times. Classes may have been unloaded
// between, but not those of methods on the stack.
func sameFrame(a, b guest.RawFrame) bool {
	a.Epoch, a.End, b.Epoch, b.End = 0, 0, 0, 0
	return a == b
}
