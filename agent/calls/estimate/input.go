package estimate

// A CodeID is a version of code that can be called: an index in Input.Codes, or VM.
type CodeID int32

// VM is the caller of what the VM itself calls, and of every call whose caller is not known.
const VM CodeID = -1

// A MethodID is a method: an index in Input.Methods, or NoMethod.
type MethodID int32

// NoMethod is the method of VM.
const NoMethod MethodID = -1

// A Place is a bytecode of a method. BCI is -1 if it is not known.
type Place struct {
	Method MethodID
	BCI    int32
}

// An Input is what is known of one guest at the end of a window of time. What refers to a code or method that does not
// exist, or is not a sensible number, is left out of account.
type Input struct {
	Duration float64 // of the window: seconds of wall time
	// CPU is how many seconds of CPU time the guest's threads took in it: the same threads and the same time that Armed
	// of Windows is about. 0 means that of the Edges' samples.
	CPU     float64
	Period  float64 // seconds of the guest's CPU time that one sample stands for
	HitCost float64 // seconds of the guest's CPU time that a hit of a breakpoint takes

	Methods []Profile // by MethodID
	Codes   []Code    // by CodeID; those that are neither sampled nor called by others may be missing
	Edges   []Edge    // what the timer saw
	Windows []Window  // what breakpoints saw
}

// A Profile is what the VM counted in a method while it interpreted it, or ran code of its profiling tiers: HotSpot's
// MethodData. The zero value is for methods without.
type Profile struct {
	Invocations float64
	Sites       []Site // with distinct BCIs
	// Rate is by how much Invocations grew a second during the window. 0 if that is not known.
	Rate float64
	// Known says that Rate and those of Sites are known, also if they are 0.
	Known bool
}

// A Site is a call in a method's bytecode.
type Site struct {
	BCI   int32
	Count float64 // of executions, whatever was called
	// Targets are the methods that were called, with their parts of Count. If always the same method is called, it is
	// the only one and has all of Count. Calls that the VM did not count by target are missing from the sum.
	Targets []Target
	// Rate is by how much Count grew a second during the window, if the Profile says that this is known.
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
	Compiled    Tier = iota // code that does not count
	Profiling               // compiled code that counts into the Profile
	Interpreted             // the interpreter, which does, too
	Native                  // a wrapper of a native method
)

// A Code is one compilation of a method, or the method as it is interpreted.
type Code struct {
	Method MethodID
	Tier   Tier
	// Loop is for code that is entered in the middle of a loop (on-stack replacement): no callee, and what the Profile
	// says per invocation says nothing per entry of this code.
	Loop bool
	// Replaced is for code that new calls do not enter any more.
	Replaced bool
	// CountsCalls is for code that counts what it calls, also in what was inlined into it, and not only how often it is entered.
	CountsCalls bool
	// Copies are what was compiled into the code. The first one is Method itself; a copy comes after its parent. May be
	// empty for codes that nothing can be inlined into.
	Copies []Copy
}

// A Copy is a method's body in a Code.
type Copy struct {
	Method MethodID
	Parent int32 // index in Copies; -1 for the first
	BCI    int32 // of the call in the parent that it stands for; -1 for the first
	// Calls are the bytecodes of the calls that the code makes, in ascending order. If the VM does not distinguish
	// them from other places with debug information, these are all such places.
	Calls []int32
}

// An Edge is a call site and a callee, with the samples of the timer whose innermost two physical frames they were.
type Edge struct {
	Caller CodeID
	// Site is where in Caller, as an inline chain: the call's place, then where what it is in was inlined. The last one
	// is in the Caller's method. Empty if it is not known.
	Site    []Place
	Callee  CodeID
	Samples float64
	AtEdge  float64 // those of Samples in the callee's prologue or epilogue, where its frame does not stand
}

// A Window is a time during which breakpoints stood on the entries of some codes.
type Window struct {
	Codes  []CodeID
	Length float64 // seconds that it was to last (Request.Duration); 0 if unknown
	// Armed is how many seconds of CPU time the guest's threads ran meanwhile, hits included; up to the last of Hits
	// if Full.
	Armed float64
	Full  bool // it ended with its last permitted hit
	Hits  []Hit
}

// A Hit is a number of calls that a Window saw.
type Hit struct {
	Caller CodeID
	Callee CodeID // one of the Window's
	Count  float64
}
