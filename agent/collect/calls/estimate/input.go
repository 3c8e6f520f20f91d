package estimate

// A CodeID is a version of code that can be called: an index in Input.Codes, or VM.
type CodeID int32

// VM is the caller of all calls by the VM itself, and of every call whose caller is not known.
const VM CodeID = -1

// A MethodID is a method: an index in Input.Methods, or NoMethod.
type MethodID int32

// NoMethod is the method of VM.
const NoMethod MethodID = -1

// A Place is a bytecode of a method. BCI is -1 if unknown.
type Place struct {
	Method MethodID
	BCI    int32
}

// An Input is what is known about one process at the end of a window of time. References to unknown
// codes or methods, and invalid numbers, are ignored.
type Input struct {
	Duration float64 // length of the window: seconds of wall time
	// CPU is the CPU seconds of the process's threads in the window: the same threads and the same
	// clock as Armed of Windows. 0 means that of the Edges' samples.
	CPU     float64
	Period  float64 // seconds of the process's CPU time that one sample stands for
	HitCost float64 // seconds of the process's CPU time that a breakpoint hit takes

	Methods []Profile // by MethodID
	Codes   []Code    // by CodeID; codes that are neither sampled nor called by others may be missing
	Edges   []Edge    // what timer samples show
	Windows []Window  // what breakpoints observed

	loops []MethodID // the Methods that those behind the others are the loops of: see splitLoops
}

// A Profile is what the VM counted in a method while it interpreted it, or ran code of its
// profiling tiers: HotSpot's MethodData. Methods without one have the zero value.
type Profile struct {
	Invocations float64
	Sites       []Site // with distinct BCIs
	// Entered is how often per second of the window the VM counted an entry, if EntersKnown: also
	// of interpreted methods whose calls are not counted.
	Entered     float64
	EntersKnown bool
	// Known says that the Rates of Sites are known, even if they are 0.
	Known bool
	// Covered is the share of the executions in the window that the Rates of Sites are from, if
	// they are Known: 1 if all were counted.
	Covered float64
	// Work is the cost of the bytecode that was executed while Invocations and the Sites were
	// counted, or of one execution if nothing was counted, in additions. Calls are not in it. 0 if
	// unknown.
	Work float64
	// Elsewhere says that code contains the method that does not count, and that may not be among
	// the Codes.
	Elsewhere bool
}

// A Site is a call in a method's bytecode.
type Site struct {
	BCI   int32
	Count float64 // number of executions, whatever was called
	// Targets are the methods that were called, with their parts of Count. A single callee has all
	// of Count. Calls that the VM did not count by target are missing from the sum.
	Targets []Target
	// Rate is the growth of Count per second during the window, if the Profile is Known.
	Rate float64
}

// A Target is one of the methods that a Site calls.
type Target struct {
	Method MethodID
	Count  float64
}

// A Tier is what executes a Code.
type Tier uint8

const (
	Compiled    Tier = iota // compiled code that does not count
	Profiling               // compiled code that counts into the Profile
	Interpreted             // the interpreter, which counts as well
	Native                  // a wrapper of a native method
)

// A Code is one compilation of a method, or the method as it is interpreted.
type Code struct {
	Method MethodID
	Tier   Tier
	// Loop marks code that is entered in the middle of a loop (on-stack replacement): it is never a
	// callee. Its rate is not that of entries, but of the most frequent call in Method.
	Loop bool
	// Replaced marks code that new calls no longer enter.
	Replaced bool
	// CountsCalls marks code that counts the calls that it makes, also in methods inlined into it,
	// and not only its entries.
	CountsCalls bool
	// Copies are the methods compiled into the code. The first one is Method itself; a copy comes
	// after its parent. It may be empty for codes without inlining.
	Copies []Copy
}

// A Copy is a method's body in a Code.
type Copy struct {
	Method MethodID
	Parent int32 // index in Copies; -1 for the first
	BCI    int32 // bytecode index of the call in the parent that was inlined; -1 for the first
	// Calls are the bytecodes of the calls that the code makes, in ascending order. If the VM does
	// not distinguish them from other places with debug information, they are all such places.
	Calls []int32
}

// An Edge is a call site and a callee, with the timer samples whose innermost two physical frames
// they were.
type Edge struct {
	Caller CodeID
	// Site is the inline chain in Caller: the place of the call, then the place where its method
	// was inlined, and so on. The last one is in the Caller's method. It is empty if unknown.
	Site    []Place
	Callee  CodeID
	Samples float64
	AtEdge  float64 // samples in the callee's prologue or epilogue, where its frame is incomplete
}

// A Window is a time during which breakpoints were set on the entries of some codes.
type Window struct {
	Codes  []CodeID
	Length float64 // planned seconds (Request.Duration); 0 if unknown
	// Armed is the CPU seconds that the process's threads ran meanwhile, including hits; if Full,
	// up to the last hit.
	Armed float64
	Full  bool // it ended with its last permitted hit
	Hits  []Hit
}

// A Hit is a number of calls that a Window observed.
type Hit struct {
	Caller CodeID
	Callee CodeID // one of the Window's
	Count  float64
}
