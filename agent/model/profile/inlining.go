package profile

import "time"

// Inlining is what a VM's inliner decides by, as far as the VM shows it: its limits, and the sizes
// of methods that calls enter.
type Inlining struct {
	Limits  InlineLimits
	Callees []Callee // by name
	Sites   []VirtualSite
}

// InlineLimits are HotSpot's flags of that name; 0 where the VM does not have one.
type InlineLimits struct {
	// FreqInlineSize is bytes of bytecode: larger methods are not inlined, however hot.
	FreqInlineSize int `json:"freq_inline_size,omitempty"`
	// InlineSmallCode is bytes of machine code: methods whose own code is larger are not inlined,
	// either.
	InlineSmallCode int `json:"inline_small_code,omitempty"`
	// TypeProfileMajorReceiverPercent is the share of a class from which a call with three or more
	// is guarded.
	TypeProfileMajorReceiverPercent int `json:"major_receiver,omitempty"`
}

// A Callee is a method that calls of a call graph enter.
type Callee struct {
	Method   string // as the VM has it, with its signature
	Bytecode int    // bytes of it; 0 if unknown, and of native methods
	// Entering is the CPU time in prologues and epilogues of the method's own code, as sampled:
	// what a call costs besides the work.
	Entering time.Duration
}

// A VirtualSite is a call with receivers of three or more classes, as the VM itself counted them
// until optimised code took over: this is what its compiler decides by.
type VirtualSite struct {
	Caller string // as the VM has it, with its signature
	Offset int32  // bytecode index of the call
	Calls  uint64
	// Targets are the targets for the classes that the VM distinguished, most calls first. The rest
	// of Calls had other receivers.
	Targets []VirtualTarget
}

// A VirtualTarget is the method that one class of receivers has.
type VirtualTarget struct {
	Callee string
	Calls  uint64
}
