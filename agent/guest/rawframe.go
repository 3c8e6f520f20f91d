package guest

import (
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A RawFrame is one frame as the kernel saw it, with what it takes to name it later. It is the key
// of the trees that samples are folded into as they arrive: names come afterwards, once per
// distinct frame.
type RawFrame struct {
	Frame bpf.Frame // or a kernel pc
	// Epoch says which code or classes the frame is of. For interpreted frames it is how many times
	// the VM had unloaded classes, as a Method structure may be another one after that. For code
	// that a map names it is JITCode.Epoch.
	Epoch uint32
	End   bpf.WalkEnd // for the outermost frame: why the walk ended here, if it ended early
	Kind  RawKind
}

// A RawKind says what a RawFrame stands for.
type RawKind uint8

// The kinds.
const (
	RawReturn  RawKind = iota // a user frame; its pc is a return address
	RawExact                  // the sampled user pc
	RawKernel                 // Frame is a kernel pc
	RawStale                  // a frame of a VM that this process no longer runs
	RawNothing                // no frame at all: it only carries End
	RawDepths                 // no frame at all: the depths of a link
	RawLeftOut                // no frame at all: frames that are missing here; Frame is log2 of their number
	RawAddress                // an address; which code was there is not known
)

// AppendStack appends the frames of s to buf, innermost first. A frame of a VM counts only if the
// process's VM is still the one that the kernel side walked: its serial is attachment. Otherwise
// the frame is stale.
func AppendStack(buf []RawFrame, s *bpf.Sample, attachment uint32) []RawFrame {
	for _, pc := range s.Kernel {
		buf = append(buf, RawFrame{Frame: bpf.Frame(pc), Kind: RawKernel})
	}
	for i, f := range s.User {
		if s.LeftOut > 0 && i == len(s.User)-bpf.RootFrames {
			buf = append(buf, leftOut(s.LeftOut))
		}
		r := RawFrame{Frame: f, Kind: RawReturn}
		if i == 0 {
			r.Kind = RawExact
		}
		switch {
		case f.Kind() == bpf.FrameNative:
		case s.Attachment != attachment || attachment == 0:
			r = RawFrame{Kind: RawStale}
		case f.Kind() == bpf.FrameInterpreted:
			r.Epoch = s.ClassEpoch
		}
		buf = append(buf, r)
	}
	if s.End.Truncated() {
		if len(buf) == 0 {
			buf = append(buf, RawFrame{Kind: RawNothing})
		}
		buf[len(buf)-1].End = s.End
	}
	return buf
}

// leftOut stands for that many frames. Only the magnitude of their number is shown: a recursion is
// of another depth in each sample, and what is called in it would be in another context each time.
func leftOut(n int) RawFrame {
	return RawFrame{Frame: bpf.Frame(bits.Len(uint(n)) - 1), Kind: RawLeftOut}
}

// cutText is how profiles show frames that are missing at the root side: "[truncated: no frame
// pointer]".
func cutText(why bpf.WalkEnd) string {
	if why == bpf.EndTime {
		return "[… cut: time]"
	}
	return "[truncated: " + why.String() + "]"
}

// leftOutText is how profiles show it: "[512 to 1023 frames left out]".
func (r RawFrame) leftOutText() string {
	least := uint64(1) << (r.Frame & 63)
	if least == 1 {
		return "[1 frame left out]"
	}
	return fmt.Sprintf("[%d to %d frames left out]", least, 2*least-1)
}
