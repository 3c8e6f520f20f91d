package profile

import "time"

// A Version is one compilation of a method. Frames name theirs by their mapping
// (symbol.Mapping.Version). Times are since the beginning of the window, and negative before it.
type Version struct {
	ID uint32 // the VM's compile id, its low 28 bits
	// HotSpot: 1 to 3 are C1's, 4 is C2's; 0 is a wrapper of a native method; -1 if it was gone before
	// that was read
	Level int
	// -1; otherwise it is entered in the loop at that bytecode only (OSR), -2 at one that is not
	// known any more
	EntryBCI   int
	Size       uint32 // bytes of its code, with the stubs behind it; 0 if that was not found out
	Method     string // method that was compiled
	SystemName string // system name of the method, with its signature
	// Since is when the VM announced it. If Seen, it did not: it was there by then.
	Since time.Duration
	Seen  bool
	State VersionState
	// InUse is when it was last seen in use, and Until when it was first seen that it was not: it
	// was given up between the two. Both are 0 if that is not known; Until is if it is in use.
	InUse, Until time.Duration
	Inlined      []string // methods that were compiled into it
	Traps        []Trap   // counted in its methods while it was in use, most first
	// Decompiles is how many optimised compilations of the method were given up by then; -1 if that
	// is not known.
	Decompiles int
}

// A VersionState is what has become of a Version by the end of the window.
type VersionState uint8

const (
	VersionUnknown VersionState = iota
	VersionInUse
	VersionGivenUp // no new call enters it; frames may still be in it
	VersionFreed
)

// A Trap is how often code of a method was left for the interpreter, for a reason by the VM's name.
type Trap struct {
	Method string `json:"method"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}
