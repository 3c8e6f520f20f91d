package exact

import (
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Method is a method as the VM knows it while its class is loaded. The same method may appear under several epochs,
// and once for every class loader. To people, methods of one name are one method. It may also be a marker, which is no method.
type Method struct {
	Addr  uint64 // of the VM's Method structure
	Epoch uint32 // how many times the VM had unloaded classes; structures are reused after that
}

// Markers stand in trees and graphs where there is no method.
var (
	// BeforeRecording is what a thread had entered when recording began.
	BeforeRecording = Method{Addr: 1}
	// Overflow is calls that found no room for their own context; they were made somewhere below its caller.
	Overflow = Method{Addr: 2}
	// Unknown is a caller that is not known: outside of all methods, or entered before recording.
	Unknown = Method{Addr: 3}
)

// Marker returns the text of a marker, or "" for a method.
func (m Method) Marker() string {
	switch m {
	case BeforeRecording:
		return "[before recording]"
	case Overflow:
		return "[overflow]"
	case Unknown:
		return "[unknown]"
	}
	return ""
}

// Frame is the method as a frame of the interpreter without a bytecode index; with Epoch it identifies the method as
// frames of samples are identified.
func (m Method) Frame() bpf.Frame {
	const noBCI = 0xffff
	return bpf.Frame(uint64(bpf.FrameInterpreted)<<60 | m.Addr>>3<<16 | noBCI)
}

// Site is what to look the method up by.
func (m Method) Site() vmruntime.Site {
	return vmruntime.Site{Kind: vmruntime.Interpreted, Method: m.Addr, BCI: -1, Epoch: m.Epoch}
}
