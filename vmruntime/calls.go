package vmruntime

import (
	"cmp"
	"slices"
)

// A CallCounter is a Process whose VM counts calls for its own ends, and whose compilations can be
// enumerated. What it counts is read from outside, while the guest runs on: numbers of one answer
// are of nearly the same moment.
//
// Methods are identified by the address of the VM's method structure, as in Site.Method. Such an
// address is good while the method's class is loaded. An implementation that has seen the method
// before tells when something else lies there now, and then answers as if there was nothing.
//
// Like those of Process, its methods are called from one goroutine at a time.
type CallCounter interface {
	Process

	// Compilations visits all compilations that are there now, those that are not entered any more
	// included, in no order, until visit returns false. Some milliseconds per thousand of them.
	Compilations(visit func(Compilation) bool) error
	// Compilation describes the one that a compiled site is in. ErrStale if another version is
	// there now.
	Compilation(Site) (Compilation, error)
	// Current is the compilation that calls of each of these methods enter now: two reads of some
	// bytes each. Methods that are interpreted are absent, and all are if the VM does not say.
	Current(methods []uint64) (map[uint64]Compilation, error)
	// Scopes is what is inlined at a compiled site, innermost first: the last one is in the
	// compiled method itself. It follows the rules of Lookup and has as many elements, except where
	// Lookup only remembers a name.
	Scopes(Site) ([]Scope, error)
	// InlineTree is what was inlined where in a compilation, as far as the VM keeps track: methods
	// that were inlined without a place where the VM may have to look at the frame are not in it.
	// The caller must not change it.
	InlineTree(Compilation) (*InlineTree, error)
	// PassingTree is an InlineTree of which the Process remembers nothing: for a look at many
	// compilations.
	PassingTree(Compilation) (*InlineTree, error)
	// AtEdge reports whether a sampled compiled site (Site.Exact) is in a prologue or an epilogue,
	// where the frame does not stand: the call was just made, or is about to return.
	AtEdge(Site) (bool, error)

	// Profiles reads what the VM counted in these methods, some ten microseconds each. Methods that
	// cannot be read, or are not what they were, are absent. The caller must not change the result.
	Profiles(methods []uint64) (map[uint64]*MethodProfile, error)
	// Names names places as Lookup does, many at a time. Those that cannot be read are zero Frames.
	Names(places []Scope) ([]Frame, error)
}

// A Compilation is one version of a method's code. Addresses are the guest's; they are reused when
// the code is gone.
type Compilation struct {
	Addr       uint64 // address of the VM's structure for it
	Begin, End uint64 // bounds of its code, stubs behind it included
	// Entry is where calls that have yet to check the receiver's class come in; 0 if there is no
	// code for it.
	Entry         uint64
	VerifiedEntry uint64 // where all other calls come in, and the former go on
	FrameComplete uint64 // address from which on the frame stands; Begin if that is not known
	Method        uint64 // what was compiled
	Version       uint32 // as in Site.Version
	Level         int    // HotSpot: 1-3 C1, of which 3 counts calls, 4 C2; 0 is a wrapper of a native method
	Tier          Tier
	// -1; otherwise it is only entered in the middle of a loop, at that bytecode, or -2 once it is
	// not entered any more
	EntryBCI int
	InUse    bool // new calls may enter it
}

// Native reports whether it is only a wrapper around a native method.
func (c *Compilation) Native() bool { return c.Tier == TierNative }

// A Scope is a place in a method.
type Scope struct {
	Method uint64
	BCI    int // bytecode index, -1 if unknown
}

// An InlineTree is what was compiled into one compilation. Node 0 is the compiled method; a node
// comes after its parent.
type InlineTree struct{ Nodes []InlineNode }

// An InlineNode is one copy of a method's body.
type InlineNode struct {
	Parent int // index of the node that it was inlined into, -1 for node 0
	BCI    int // bytecode index of the call in the parent that it stands for, -1 for node 0
	Method uint64
	// Calls are the bytecode indexes of the calls that the code makes, ascending. If the
	// instructions do not show them, they are those of all places for which the VM has debug
	// information.
	Calls []int
}

// Vanished are the methods that node n was seen to call, by its method's profile, although the code
// neither calls nor contains them: they were inlined without a trace. In any order; a method may be
// there twice.
func (t *InlineTree) Vanished(n int, p *MethodProfile) (targets []uint64) {
	node := &t.Nodes[n]
	for i := range p.Calls {
		c := &p.Calls[i]
		if c.Count == 0 || slices.Contains(node.Calls, c.BCI) {
			continue
		}
		for _, m := range c.targets() {
			if !slices.ContainsFunc(t.Nodes, func(in InlineNode) bool {
				return in.Parent == n && in.BCI == c.BCI &&
					in.Method == m
			}) {
				targets = append(targets, m)
			}
		}
	}
	return targets
}

// A MethodProfile is what a VM counted in one method. Everything in it was counted from the same
// moment on, and stops when code without counters takes over, so that ratios are good for longer
// than numbers.
type MethodProfile struct {
	Method   uint64
	Bytecode int // bytes of it; 0 for native methods
	// Counted reports that calls were counted: Invocations and the counts in Calls have a meaning.
	// Otherwise only what the method can call is known.
	Counted     bool
	Invocations uint64 // invocations of the method since its calls are counted
	Before      uint64 // invocations before its calls were counted, as far as the VM kept them
	// Calls are the calls that the method's code has, by ascending bytecode index.
	Calls []CallCount
	// Cut reports that Calls ends early, because the rest of the bytecode could not be understood.
	Cut bool
}

// Call returns the call at a bytecode index, or nil.
func (p *MethodProfile) Call(bci int) *CallCount {
	i, found := slices.BinarySearchFunc(p.Calls, bci, func(c CallCount, bci int) int { return cmp.Compare(c.BCI, bci) })
	if !found {
		return nil
	}
	return &p.Calls[i]
}

// CallKind says how the callee of a call is found.
type CallKind uint8

const (
	StaticCall    CallKind = iota + 1
	SpecialCall            // constructors, private and super methods: as static, with a receiver
	VirtualCall            // resolved by the receiver's class; also of methods that cannot be overridden
	InterfaceCall          // resolved by the receiver's class, through an interface
	DynamicCall            // linked at run time; Target, if known, is code that the VM made to get to what is called
)

// String is the kind as the class file's instructions have it: "static".
func (k CallKind) String() string {
	names := [...]string{"unknown", "static", "special", "virtual", "interface", "dynamic"}
	if int(k) >= len(names) {
		k = 0
	}
	return names[k]
}

// A CallCount is one call in a method's code.
type CallCount struct {
	BCI  int
	Kind CallKind
	// Count is how often the call was made. The part that Receivers do not add up to went to
	// receivers that the VM did not distinguish.
	Count     uint64
	Receivers []Receiver // receivers of virtual and interface calls, by descending count
	// Target is the only method that can be called here, if that is known: else 0. It is known once
	// the call was made by the interpreter, and for static and special calls and for methods that
	// cannot be overridden.
	Target uint64
	// Function and Signature are what the call's class file says, in the form of Frame: the class
	// is the one that was declared there, not that of Target. Empty for most dynamic calls.
	Function, Signature string
}

// targets are the methods that the call leads to, as far as that is known.
func (c *CallCount) targets() (list []uint64) {
	if c.Target != 0 {
		return []uint64{c.Target}
	}
	for _, r := range c.Receivers {
		if r.Target != 0 {
			list = append(list, r.Target)
		}
	}
	return list
}

// A Receiver is a class of which receivers were seen at a call.
type Receiver struct {
	Class  string // java.util.HashMap
	Klass  uint64 // address of the VM's class structure
	Count  uint64
	Target uint64 // the method that the call leads to for it, 0 if that could not be found out
}

// A FlowReader is a Process whose VM shows the control flow of methods, and counts it.
type FlowReader interface {
	// Flow reads the control flow graph of a method, and how often its blocks were executed while
	// the VM counted. ErrUnknown if the method or its bytecode cannot be read.
	Flow(method uint64) (*MethodFlow, error)
}

// A MethodFlow is the control flow graph of a method. The counts are of the time in which the VM
// counted: warm-up.
type MethodFlow struct {
	Counted bool // Count has a meaning
	Blocks  []FlowBlock
	Writes  []LocalWrite // by ascending bytecode index
}

// A LocalWrite is an instruction that changes a local variable.
type LocalWrite struct {
	BCI   int
	Local int // its number; long and double have two, of which this is the first
	Step  int // increment of an int; 0 if the variable is replaced
}

// CallCost is the part of a FlowBlock's Cost for each call in it.
const CallCost = 20.

// A FlowBlock is a row of instructions that are executed one after the other. Block 0 is the entry.
type FlowBlock struct {
	Begin, End int     // bytecode indexes: [Begin, End)
	Last       int     // index of the last instruction
	Cost       float64 // cost of its instructions, about, in units of a simple one
	Count      uint64  // how often it was executed
	Successors []int   // indexes of blocks; what exceptions lead to is not among them
}

// A SafepointReader is a Process whose compiled code shows where threads can be stopped.
type SafepointReader interface {
	// Safepoints are the places in a compilation at which threads look whether they are to stop,
	// and to which calls of other methods return, by ascending address. Some ten microseconds per
	// kilobyte of code. ErrStale if it is gone; ErrUnknown if the VM does not show them.
	Safepoints(Compilation) ([]Safepoint, error)
}

// SafepointKind says what a Safepoint is.
type SafepointKind uint8

const (
	PollSafepoint SafepointKind = iota + 1 // the instruction that looks whether to stop: in loops
	CallSafepoint                          // the instruction that a call returns to
)

// A Safepoint is a place in compiled code where the VM knows the frame.
type Safepoint struct {
	PC     uint64
	Kind   SafepointKind
	Scopes []Scope // innermost first: for a poll the jump backwards, for a call the call
	Locals []Local // locals of the innermost scope, by number; those at the end may be missing
}

// A Local is where a frame keeps a local variable of type int, at one place in the code.
type Local struct {
	Kind     LocalKind
	Register uint8 // LocalRegister: its number in the machine's instructions (amd64: 0 is rax, 15 is r15)
	Offset   int32 // LocalStack: bytes above the stack pointer
}

// LocalKind says where a Local is.
type LocalKind uint8

const (
	LocalUnknown  LocalKind = iota // no int, or not kept
	LocalRegister                  // the lower half of a register
	LocalStack                     // a place in the frame
)
