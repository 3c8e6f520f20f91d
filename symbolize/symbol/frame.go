// Package symbol has the names of frames: of code of VMs, of native code, of the kernel, and of
// what is no code. It makes printable what a target calls itself.
package symbol

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

// A Mapping is a file, or a pseudo-file such as [jit:HotSpot], that frames belong to. Start, Limit
// and Offset are as in /proc/PID/maps; zero if they have no meaning.
type Mapping struct {
	File                 string
	BuildID              string
	Start, Limit, Offset uint64
	// Version is the compile id of a code version; 0 for any other mapping. With a version, Start
	// and Limit are those of all of the VM's code.
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
	// StartLine is the line on which the function begins, which compilers want to know; 0 if it is
	// not known. Only Go's is.
	StartLine int
	Kind      Kind
	Inlined   bool // inlined into the next outer frame, with which it shares Address and Mapping
	// Approximate marks a frame [inlined in M]: M itself, or a method inlined into it (see
	// vmruntime.Frame).
	Approximate bool
	Mapping     unique.Handle[Mapping]
	Address     uint64
}

// A Symbol is a Frame that is small and can be compared. What lines of a function share is interned
// once, and addresses not at all: code has few functions, but in the native code of a process that
// runs for long there are ever new addresses.
type Symbol struct {
	place   unique.Handle[place]
	address uint64
}

// A Function is what the symbols of a function share: its Function, SystemName, File and StartLine.
// Who makes many symbols of a function finds it once, which takes most of the time of Intern.
type Function struct{ handle unique.Handle[function] }

// A place is a Frame without its address.
type place struct {
	function             unique.Handle[function]
	mapping              unique.Handle[Mapping]
	line                 int
	kind                 Kind
	inlined, approximate bool
}

// A function is what all lines of a function share.
type function struct {
	name, systemName, file string
	startLine              int
}

// Intern returns the symbol of f.
func Intern(f Frame) Symbol { return FunctionOf(f).Intern(f) }

// FunctionOf is the function that f is a frame of.
func FunctionOf(f Frame) Function {
	return Function{unique.Make(function{f.Function, f.SystemName, f.File, f.StartLine})}
}

// Intern returns the symbol of a frame of the function, whatever f says of that.
func (of Function) Intern(f Frame) Symbol {
	return Symbol{unique.Make(place{
		function: of.handle, mapping: f.Mapping,
		line: f.Line, kind: f.Kind, inlined: f.Inlined, approximate: f.Approximate,
	}), f.Address}
}

// Value returns the frame of s, which must not be the zero Symbol.
func (s Symbol) Value() Frame {
	p := s.place.Value()
	f := p.function.Value()
	return Frame{
		Function: f.name, SystemName: f.systemName, File: f.file, Line: p.line, StartLine: f.startLine, Kind: p.kind,
		Inlined: p.inlined, Approximate: p.approximate, Mapping: p.mapping, Address: s.address,
	}
}

// Address is that of the frame.
func (s Symbol) Address() uint64 { return s.address }

// Inlined reports whether the frame is inlined.
func (s Symbol) Inlined() bool { return s.place.Value().inlined }

// Approximate reports whether the frame is approximate.
func (s Symbol) Approximate() bool { return s.place.Value().approximate }

// WithoutAddress returns the symbol that all addresses of a line share, or of a function whose
// lines are not known.
func (s Symbol) WithoutAddress() Symbol { return Symbol{place: s.place} }

// Function is the frame's name for people.
func (s Symbol) Function() string { return s.place.Value().function.Value().name }

// Kind is the source of the frame's name.
func (s Symbol) Kind() Kind { return s.place.Value().kind }
