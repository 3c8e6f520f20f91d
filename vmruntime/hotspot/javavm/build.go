package javavm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Symbols of libjvm that are not exported; they are only there if the file was not stripped.
const (
	symbolCurrentThread = "_ZN6Thread12_thr_currentE" // thread-local Thread::_thr_current
	symbolJavaThread    = "_ZTV10JavaThread"          // vtable of JavaThread
	SymbolStubList      = "_ZN12StubCodeDesc5_listE"  // StubCodeDesc::_list
	SymbolEnterReturn   = "_ZN17ContinuationEntry10_return_pcE"

	// Bounds of the archive of classes: MetaspaceObj::_shared_metaspace_base and _top, which JDK 11
	// has in no table.
	SymbolArchiveLow  = "_ZN12MetaspaceObj22_shared_metaspace_baseE"
	SymbolArchiveHigh = "_ZN12MetaspaceObj21_shared_metaspace_topE"
)

// A Build is what one build of libjvm taught. It is immutable and may be used for many processes at
// once.
type Build struct {
	Machine elf.Machine
	Symbols map[string]uint64 // addresses of the file, of those that it has
	TLSSlot uint64            // address of the file of the word with its TLS module id, 0 if unknown
	probes  []elffile.Probe   // those of the names below

	// UpcallName is the address of the file of the name of stubs for upcalls, 0 if unknown. No code
	// of a VM has it before the first one is made, and by then stacks lead through it.
	upcallName uint64

	Low, High uint64 // bounds of the file's addresses
}

// Names of the USDT probes (provider "hotspot") that keep the method map current.
const (
	ProbeCodeLoad    = "compiled__method__load"   // class, length, name, length, signature, length, code, size
	ProbeCodeUnload  = "compiled__method__unload" // the first six of these
	ProbeClassUnload = "class__unloaded"          // class, length, loader, shared
)

// NewBuild reads the symbols and probes of a libjvm: nil, nil for a file that is not HotSpot's.
func NewBuild(file *elffile.File) (*Build, error) {
	var required []string
	for _, table := range vmstructs.Arrays {
		required = append(required, table.Symbols()...)
	}
	found, err := file.FindSymbols(required...)
	if err != nil {
		return nil, fmt.Errorf("symbols of libjvm: %w", err)
	}
	if _, ok := found[required[0]]; !ok {
		return nil, nil
	}
	b := &Build{Machine: file.Machine(), Symbols: make(map[string]uint64)}
	b.Low, b.High = bounds(file.Segments())
	// Symbols that are not exported are not essential, and neither are probes: Layout.Missing and
	// Probes show what is lost.
	hidden, err := file.FindSymbols(symbolCurrentThread, symbolJavaThread, SymbolStubList,
		SymbolEnterReturn, SymbolArchiveLow, SymbolArchiveHigh)
	if err != nil {
		hidden = nil
	}
	for _, symbols := range []map[string]elffile.Symbol{found, hidden} {
		for name, symbol := range symbols {
			b.Symbols[name] = symbol.Value
		}
	}
	if slot, err := file.TLSModuleSlot(); err == nil && !ofMusl(file) {
		b.TLSSlot = slot
	}
	if b.upcallName = findText(file, codecache.UpcallName); b.upcallName == 0 {
		b.upcallName = findText(file, codecache.OldUpcallName)
	}
	probes, _ := file.Probes()
	for _, p := range probes {
		switch p.Name {
		case ProbeCodeLoad, ProbeCodeUnload, ProbeClassUnload:
			if p.Provider == "hotspot" {
				b.probes = append(b.probes, p)
			}
		}
	}
	return b, nil
}

// maxConstants bounds the constants of a libjvm that are searched: they are 1 MB.
const maxConstants = 64 << 20

// findText returns the address of the file at which a constant string is; 0 if there is none, or
// several.
func findText(file *elffile.File, text string) uint64 {
	constants, err := file.Section(".rodata")
	if err != nil || constants.Size > maxConstants {
		return 0
	}
	data := make([]byte, constants.Size)
	if file.ReadLoaded(data, constants.Address) != nil {
		return 0
	}
	whole := []byte("\x00" + text + "\x00")
	at := bytes.Index(data, whole)
	if at < 0 || at != bytes.LastIndex(data, whole) {
		return 0
	}
	return constants.Address + uint64(at) + 1
}

// ofMusl reports whether the build is for musl, whose threads keep their thread-local storage in
// another way than glibc's.
func ofMusl(file *elffile.File) bool {
	musl, err := file.Needs("libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1", "libc.so")
	return err == nil && musl
}

// bounds are those of what is mapped of a file.
func bounds(segments elffile.Segments) (low, high uint64) {
	low = math.MaxUint64
	for _, s := range segments {
		if elf.ProgType(s.Type) == elf.PT_LOAD {
			low, high = min(low, s.Vaddr), max(high, s.Vaddr+s.Memsz)
		}
	}
	return min(low, high), high
}

// Probes returns the sites of the probe of that name: none if this build has no such probe, several
// where the compiler cloned it, each with its own operands. The caller must not change them.
func (i *Build) Probes(name string) (sites []elffile.Probe) {
	for _, p := range i.probes {
		if p.Name == name {
			sites = append(sites, p)
		}
	}
	return sites
}
