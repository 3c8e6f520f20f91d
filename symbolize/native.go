// Package symbolize names addresses of native code by the symbols of ELF files, and those of the
// kernel by its symbol table. Whom to ask for a frame, a VM or this package, is decided by
// guest.Resolver. A frame without a name is [unknown] in its mapping.
package symbolize

import (
	"slices"
	"sync"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// kernelMapping is the mapping of frames of the kernel itself; for a module it is the module's name
// in brackets.
const kernelMapping = "[kernel]"

// Frame names the code at addr in the mapping m of the file. Code without a name is [unknown]
// there, with the start address of its function if the file has it. addr is an address of the
// process; for a return address pass addr-1, as the call may be the last instruction of its
// function. A nil Object, for a file that could not be read or a mapping without one, has no names.
func (o *Object) Frame(m symbol.Mapping, addr uint64) symbol.Frame {
	m.File = symbol.CleanName(m.File)
	frame := symbol.Frame{Function: symbol.Unknown, Kind: symbol.KindNative, Address: addr}
	if o != nil {
		if m.BuildID == "" {
			m.BuildID = o.buildID
		}
		if name, ok := o.lookupMapped(m, addr); ok {
			frame.Function, frame.SystemName = name.Function, name.System
		} else if start, ok := o.startMapped(m, addr); ok {
			frame.Function = symbol.UnknownAt(m.File, start)
		}
	}
	frame.Mapping = unique.Make(m)
	return frame
}

// EndsThread reports whether the stack of a thread may end at an address in the mapping m, although
// no symbol says so (IsThreadRoot): C libraries are stripped of the names of the functions that
// begin threads.
func (o *Object) EndsThread(m symbol.Mapping, addr uint64) bool {
	if o == nil || len(o.bottoms) == 0 {
		return false
	}
	start, ok := o.startMapped(m, addr)
	_, found := slices.BinarySearch(o.bottoms, start)
	return ok && found
}

// startMapped is functionStart for an address of a process.
func (o *Object) startMapped(m symbol.Mapping, addr uint64) (uint64, bool) {
	if addr < m.Start || addr >= m.Limit {
		return 0, false
	}
	bias, err := o.segments.Bias(m.Start, m.Offset)
	if err != nil {
		return 0, false
	}
	return o.functionStart(addr - bias)
}

// lookupMapped is Lookup for an address of a process.
func (o *Object) lookupMapped(m symbol.Mapping, addr uint64) (Name, bool) {
	if addr < m.Start || addr >= m.Limit {
		return Name{}, false
	}
	bias, err := o.segments.Bias(m.Start, m.Offset)
	if err != nil {
		return Name{}, false // the file was replaced by another one since it was mapped
	}
	return o.Lookup(addr - bias)
}

// maxKernelSymbols bounds the symbols that a Kernel keeps.
const maxKernelSymbols = 8 << 10

// A kernelSymbols has symbols by address, of what was asked for: every process enters the kernel at
// the same places.
type kernelSymbols struct {
	mu    sync.Mutex
	known map[uint64]symbol.Symbol
}

// Symbol is Frame as a symbol, and says whether the code has a name. It may be called by several
// goroutines.
func (k *Kernel) Symbol(addr uint64) (s symbol.Symbol, known bool) {
	if k == nil {
		return symbol.Intern(k.Frame(addr)), false
	}
	if _, ok := k.loaded.Lookup(addr); ok { // it may be unloaded at any time
		f := k.Frame(addr)
		return symbol.Intern(f), f.Function != symbol.Unknown
	}
	k.symbols.mu.Lock()
	s, known = k.symbols.known[addr]
	k.symbols.mu.Unlock()
	if known {
		return s, true
	}
	f := k.Frame(addr)
	if s = symbol.Intern(f); f.Function == symbol.Unknown {
		return s, false
	}
	k.symbols.mu.Lock()
	defer k.symbols.mu.Unlock()
	if k.symbols.known == nil || len(k.symbols.known) >= maxKernelSymbols {
		k.symbols.known = map[uint64]symbol.Symbol{}
	}
	k.symbols.known[addr] = s
	return s, true
}

// Frame names the kernel's code at addr, in the mapping [kernel] or that of a module. A nil Kernel
// has no names.
func (k *Kernel) Frame(addr uint64) symbol.Frame {
	frame := symbol.Frame{Function: symbol.Unknown, Kind: symbol.KindKernel, Address: addr}
	m := symbol.Mapping{File: kernelMapping}
	if name, module, ok := k.Lookup(addr); ok {
		frame.SystemName = symbol.CleanName(name)
		frame.Function = functionName(name) // the kernel's Rust is mangled
		if module != "" {
			m.File = symbol.CleanName("[" + module + "]")
		}
	}
	frame.Mapping = unique.Make(m)
	return frame
}
