// Package symbolize turns addresses into frames: it asks the VM first, or the map that it writes for perf, then the ELF file mapped there,
// then the kernel's symbol table. A frame without a name is [unknown] in its mapping.
package symbolize

import "unique"

// Kind is the source of a frame's name.
type Kind uint8

const (
	KindUnknown     Kind = iota
	KindJIT              // compiled guest code
	KindInterpreted      // guest code in the VM's interpreter
	KindStub             // code the VM generated for itself
	KindNative           // an ELF file
	KindKernel           // the kernel
	KindMarker           // not code: [truncated: …], [stale], …
)

// A Mapping is a file, or a pseudo-file such as [jit:HotSpot], that frames belong to. Start, Limit and Offset are as in /proc/PID/maps;
// zero if they have no meaning.
type Mapping struct {
	File                 string
	BuildID              string
	Start, Limit, Offset uint64
	// Version is the compile id of a code version; 0 for any other mapping. With a version, Start and Limit are those of all of the VM's
	// code.
	Version uint32
}

// WithoutVersion returns the mapping that all versions of a code share.
func (m Mapping) WithoutVersion() Mapping {
	m.Version = 0
	return m
}

// A Frame is one logical frame of a stack, named.
type Frame struct {
	Function   string // for people: java.util.HashMap.get, JavaThread::run()
	SystemName string // as the linker or the VM has it: mangled, or with its signature
	File       string
	Line       int
	Kind       Kind
	Inlined    bool // inlined into the next outer frame, with which it shares Address and Mapping
	// Approximate marks a frame [inlined in M]: M itself, or a method inlined into it (see vmruntime.Frame).
	Approximate bool
	Mapping     unique.Handle[Mapping]
	Address     uint64
}

// A Symbol is an interned Frame: one comparable word.
type Symbol = unique.Handle[Frame]

// Intern returns the symbol of f.
func Intern(f Frame) Symbol { return unique.Make(f) }
