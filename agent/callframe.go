package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// branched is one end of a call that the CPU recorded: an address, of which the record does not say what code it is.
func branched(pc uint64) target.RawFrame {
	return target.RawFrame{Frame: bpf.Frame(uint64(bpf.FrameNative)<<60 | pc&(1<<60-1)), Kind: target.RawAddress}
}

// listened is a call that a listener caught, as the trees and names have frames. False if it is of a VM that the
// process no longer runs.
func listened(c *bpf.Call, attachment uint32) (caller, callee target.RawFrame, ok bool) {
	ok = c.Attachment == attachment && attachment != 0
	callee = target.RawFrame{Frame: bpf.Frame(c.Callee), Kind: target.RawExact}
	return callSite(bpf.Frame(c.Caller), c.ClassEpoch), callee, ok
}

// callSite is where a listener saw a call come from.
func callSite(f bpf.Frame, classEpoch uint32) target.RawFrame {
	r := target.RawFrame{Frame: f, Kind: target.RawReturn}
	if f.Kind() == bpf.FrameInterpreted {
		r.Epoch = classEpoch
	}
	return r
}
