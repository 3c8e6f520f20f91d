package exact

import (
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Method is a method as the VM knows it while its class is loaded. The same method may occur in
// several epochs, and once per class loader. Profiles merge methods of one name. A Method may also
// be a marker, which is not a method.
type Method struct {
	Addr  uint64 // address of the VM's Method structure
	Epoch uint32 // how many times the VM had unloaded classes; structures are reused after that
}

// Markers stand in trees and graphs where there is no method.
var (
	// BeforeRecording stands for the frames that a thread had when recording began.
	BeforeRecording = Method{Addr: 1}
	// Overflow stands for calls without room for their own context; they were made somewhere below
	// its caller.
	Overflow = Method{Addr: 2}
	// Unknown stands for an unknown caller: outside of all methods, or entered before recording.
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

// Frame returns the method as a frame of the interpreter without a bytecode index. With Epoch it
// identifies the method in the same way as frames of samples.
func (m Method) Frame() bpf.Frame {
	const noBCI = 0xffff
	return bpf.Frame(uint64(bpf.FrameInterpreted)<<60 | m.Addr>>3<<16 | noBCI)
}

// Site returns the key to look the method up by.
func (m Method) Site() vmruntime.Site {
	return vmruntime.Site{Kind: vmruntime.Interpreted, Method: m.Addr, BCI: -1, Epoch: m.Epoch}
}
