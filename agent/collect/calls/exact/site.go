package exact

import (
	"errors"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// The functions that methods' code calls when a method begins and ends, with (JavaThread*, Method*)
// as arguments (src/hotspot/share/runtime/sharedRuntime.cpp). The USDT probes method__entry and
// method__return are inside of these functions, where the Method* is no longer in a register.
const (
	entrySymbol  = "_ZN13SharedRuntime19dtrace_method_entryEP10JavaThreadP6Method"
	returnSymbol = "_ZN13SharedRuntime18dtrace_method_exitEP10JavaThreadP6Method"
)

// Flag is the command line flag that makes a JVM report its calls.
const Flag = "DTraceMethodProbes"

// NoC1Inlining is the command line flag that makes contexts exact around exceptions, too.
const NoC1Inlining = "-XX:C1MaxInlineSize=0"

// ErrFlag says that the JVM runs without Flag, which cannot be changed while it runs.
var ErrFlag = errors.New("the JVM does not report its calls: start it with -XX:+" + Flag + " " + NoC1Inlining +
	" (which makes programs about 10 times slower)")

// A VM reads its command line flags of type bool, as a vmruntime.FlagReader does.
type VM interface {
	Flag(name string) (bool, error)
}

// Check returns nil if the VM reports its calls, ErrFlag if it does not, and another error if its
// flags cannot be read.
func Check(vm VM) error {
	on, err := vm.Flag(Flag)
	if err != nil {
		return fmt.Errorf("read the JVM's flag %s: %w", Flag, err)
	}
	if !on {
		return ErrFlag
	}
	return nil
}

// Sites are the places of the probes in a libjvm, as offsets in the file.
type Sites struct {
	Entry, Return uint64
	Objects       []ObjectSite // see FindObjectSites; nil if objects are not counted
}

// FindSites finds the sites in a libjvm, whose bytes are in text. It refuses instructions that the
// kernel would have to single-step, which would add 10 to 70 us to every call.
func FindSites(file *elffile.File, text io.ReaderAt) (Sites, error) {
	found, err := file.FindSymbols(entrySymbol, returnSymbol)
	if err != nil {
		return Sites{}, fmt.Errorf("symbols of libjvm: %w", err)
	}
	var s Sites
	for name, to := range map[string]*uint64{entrySymbol: &s.Entry, returnSymbol: &s.Return} {
		symbol, ok := found[name]
		if !ok {
			return Sites{}, fmt.Errorf("libjvm has no symbol %s: its .symtab was stripped; "+
				"use a JVM with symbols, such as those of Debian and Temurin", name)
		}
		if *to, err = findSite(file, text, symbol.Value); err != nil {
			return Sites{}, fmt.Errorf("probe %s: %w", name, err)
		}
	}
	return s, nil
}

var errInstruction = errors.New("the kernel does not emulate the instruction there, so a probe would make every call " +
	"10 to 70 us slower: use another build of the JDK")

// findSite returns the offset in the file of the function's first instruction, or of the second if
// the first is an endbr64.
func findSite(file *elffile.File, text io.ReaderAt, addr uint64) (uint64, error) {
	offset, ok := file.AddressToOffset(addr)
	if !ok {
		return 0, fmt.Errorf("address %#x is not in the file", addr)
	}
	var code [16]byte
	if _, err := text.ReadAt(code[:], int64(offset)); err != nil {
		return 0, fmt.Errorf("read code: %w", err)
	}
	skip, ok := cheap(code[:])
	if !ok {
		return 0, errInstruction
	}
	return offset + uint64(skip), nil
}

// cheap finds an instruction at the beginning of a function that the kernel emulates when it has a
// probe, and that every call executes while the arguments are in their registers: a push of a
// register or a nop, possibly after an endbr64. It returns the number of bytes before it.
func cheap(code []byte) (skip int, ok bool) {
	if len(code) >= 4 && [4]byte(code) == [4]byte{0xf3, 0x0f, 0x1e, 0xfa} { // endbr64
		skip = 4
	}
	code = code[skip:]
	switch {
	case len(code) < 5:
		return 0, false
	case code[0] >= 0x50 && code[0] <= 0x57: // push r
		return skip, true
	case code[0] == 0x41 && code[1] >= 0x50 && code[1] <= 0x57: // push r8-r15
		return skip, true
	case code[0] == 0x90: // nop
		return skip, true
	case [5]byte(code) == [5]byte{0x0f, 0x1f, 0x44, 0x00, 0x00}: // nop of five bytes
		return skip, true
	}
	return 0, false
}
