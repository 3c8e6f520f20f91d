package agent

import (
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A rawFrame is one frame as the kernel saw it, with what it takes to name it later. It is the key of the trees that
// samples are folded into as they arrive: names come afterwards, once per distinct frame.
type rawFrame struct {
	frame bpf.Frame // or a kernel pc
	// epoch: which code or classes of the guest the frame speaks of. For interpreted frames how many times the guest
	// had unloaded classes, as a Method structure may be another one after it. For code that a map names jitCode.epoch.
	epoch uint32
	end   bpf.WalkEnd // of the outermost frame: why the walk ended here, if it ended early
	kind  rawKind
}

type rawKind uint8

const (
	rawReturn  rawKind = iota // a user frame; its pc is a return address
	rawExact                  // the sampled user pc
	rawKernel                 // frame is a kernel pc
	rawStale                  // a guest frame of a VM that this process no longer runs
	rawNothing                // no frame at all: it only carries end
	rawDepths                 // no frame at all: the depths of a link
	rawLeftOut                // no frame at all: frames that are missing here; frame is log2 of their number
	rawAddress                // an address of which is not known what code was there
)

// rawStack appends the frames of s to buf, innermost first. A guest frame counts only while the process's VM is the
// one that the kernel side was told of: attachment.
func rawStack(buf []rawFrame, s *bpf.Sample, attachment uint32) []rawFrame {
	for _, pc := range s.Kernel {
		buf = append(buf, rawFrame{frame: bpf.Frame(pc), kind: rawKernel})
	}
	for i, f := range s.User {
		if s.LeftOut > 0 && i == len(s.User)-bpf.RootFrames {
			buf = append(buf, leftOut(s.LeftOut))
		}
		r := rawFrame{frame: f, kind: rawReturn}
		if i == 0 {
			r.kind = rawExact
		}
		switch {
		case f.Kind() == bpf.FrameNative:
		case s.Attachment != attachment || attachment == 0:
			r = rawFrame{kind: rawStale}
		case f.Kind() == bpf.FrameInterpreted:
			r.epoch = s.ClassEpoch
		}
		buf = append(buf, r)
	}
	if s.End.Truncated() {
		if len(buf) == 0 {
			buf = append(buf, rawFrame{kind: rawNothing})
		}
		buf[len(buf)-1].end = s.End
	}
	return buf
}

// leftOut stands for that many frames. Their number is only told by its magnitude: a recursion is of another depth in each sample,
// and what is called in it would be in another context each time.
func leftOut(n int) rawFrame {
	return rawFrame{frame: bpf.Frame(bits.Len(uint(n)) - 1), kind: rawLeftOut}
}

// leftOutText is how profiles show it: "[512 to 1023 frames left out]".
func (r rawFrame) leftOutText() string {
	least := uint64(1) << (r.frame & 63)
	if least == 1 {
		return "[1 frame left out]"
	}
	return fmt.Sprintf("[%d to %d frames left out]", least, 2*least-1)
}
