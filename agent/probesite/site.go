package probesite

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Errors that callers distinguish.
var (
	// ErrNotFound: the file has no such note or symbol.
	ErrNotFound = elffile.ErrNotFound
	// ErrNoSite: it has, but no instruction there is cheap and right. The text says what was found instead.
	ErrNoSite = errors.New("no cheap place for a probe")
	// ErrMachine: the code is not x86-64.
	ErrMachine = errors.New("only x86-64 code is supported")
)

// A Site is a place for a uprobe in a file.
type Site struct {
	Offset       uint64 // in the file, bytes: where the probe goes
	RefCtrOffset uint64 // of the note's semaphore in the file; 0 if there is none. Everybody who attaches must pass it
	Address      uint64 // of the instruction, as the file counts

	Function string // symbol of the function around it, as the linker has it; "" if none is known
	// Clone is "constprop" or "isra" if Function is a copy of what was asked for that the compiler made for some of the
	// callers: arguments that are constant for these, or that it took apart, are not where the ABI has them.
	Clone string

	Kind     Kind // of the instruction
	Emulated bool // by the kernel: see Finder.Emulates

	// Call is the address of the call that the site stands behind, 0 for other sites.
	Call uint64
	// Distance is how many instructions are before the site: from the function's begin, or from behind the call.
	Distance int

	Args []elffile.Operand // of a note
}

// sorted sorts sites by address and leaves one for each.
func sorted(sites []Site) []Site {
	slices.SortStableFunc(sites, func(a, b Site) int { return cmp.Compare(a.Address, b.Address) })
	return slices.CompactFunc(sites, func(a, b Site) bool { return a.Address == b.Address })
}
