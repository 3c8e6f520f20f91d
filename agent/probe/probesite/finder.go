package probesite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A Finder finds sites in one file. It reads the file on request, and keeps the table of its
// symbols (3 MB for libjvm). Only one goroutine at a time may use it.
type Finder struct {
	// Emulates reports which kinds the running kernel emulates. Nil means Kind.Emulated: the kinds
	// that all supported kernels emulate.
	Emulates func(Kind) bool

	file  *elffile.File
	bytes io.ReaderAt
	table *elffile.Table // nil until it is needed

	// landmarks are functions that were found without symbols, by their names. If there are any,
	// symbols cannot be used to find the function around an address.
	landmarks map[string]function
	lookups   int // searches for functions without symbols
}

// New returns a finder for a file; bytes is what the file was opened with.
func New(file *elffile.File, bytes io.ReaderAt) *Finder {
	return &Finder{file: file, bytes: bytes}
}

func (f *Finder) emulates(k Kind) bool {
	if f.Emulates == nil {
		return k.Emulated()
	}
	return f.Emulates(k)
}

// symbols returns the table of symbols. ErrNotFound if the file was stripped of all of them.
func (f *Finder) symbols() (*elffile.Table, error) {
	if f.table == nil {
		table, err := f.file.Symbols()
		if err != nil {
			return nil, err
		}
		f.table = table
	}
	return f.table, nil
}

// code reads size bytes at an address of the file.
func (f *Finder) code(addr, size uint64) ([]byte, error) {
	offset, ok := f.file.AddressToOffset(addr)
	last, all := f.file.AddressToOffset(addr + size - 1)
	if !ok || !all || size == 0 || size > maxFunction || last-offset != size-1 {
		return nil, fmt.Errorf("%d bytes of code at %#x are not in the file: %w", size, addr, elffile.ErrMalformed)
	}
	code := make([]byte, size)
	if n, err := f.bytes.ReadAt(code, int64(offset)); n < len(code) {
		return nil, fmt.Errorf("read code at offset %#x: %w", offset, err)
	}
	return code, nil
}

// site returns the site at an address whose instruction is known.
func (f *Finder) site(addr uint64, k Kind) (Site, error) {
	offset, ok := f.file.AddressToOffset(addr)
	if !ok {
		return Site{}, fmt.Errorf("address %#x is not in the file: %w", addr, elffile.ErrMalformed)
	}
	return Site{Offset: offset, Address: addr, Kind: k, Emulated: f.emulates(k)}, nil
}

func (f *Finder) needX86() error {
	if f.file.Machine() != elf.EM_X86_64 {
		return fmt.Errorf("%v: %w", f.file.Machine(), ErrMachine)
	}
	return nil
}

// Errors that callers distinguish.
var (
	// ErrNotFound: the file has no such note or symbol.
	ErrNotFound = elffile.ErrNotFound
	// ErrNoSite: the note or symbol exists, but no instruction there is cheap and suitable. The
	// text says what was found instead.
	ErrNoSite = errors.New("no cheap place for a probe")
	// ErrMachine: the code is not x86-64.
	ErrMachine = errors.New("only x86-64 code is supported")
)

// A Site is a place for a uprobe in a file.
type Site struct {
	Offset       uint64 // in the file, bytes: where the probe goes
	RefCtrOffset uint64 // the note's semaphore in the file; 0 if there is none. Every attachment must pass it
	Address      uint64 // address of the instruction, in the file's addresses

	Function string // symbol of the function around it, as the linker has it; "" if unknown
	// Clone is "constprop" or "isra" if Function is a copy of the requested function that the
	// compiler made for some of the callers. Arguments that are constant for these, or that it
	// split, are not where the ABI has them.
	Clone string

	Kind     Kind // kind of the instruction
	Emulated bool // by the kernel: see Finder.Emulates

	// Call is the address of the call before the site, 0 for other sites.
	Call uint64
	// Distance is how many instructions are before the site: from the function's beginning, or from
	// the end of the call.
	Distance int

	Args []elffile.Operand // operands of a note
}

// sorted sorts sites by address and leaves one for each.
func sorted(sites []Site) []Site {
	slices.SortStableFunc(sites, func(a, b Site) int { return cmp.Compare(a.Address, b.Address) })
	return slices.CompactFunc(sites, func(a, b Site) bool { return a.Address == b.Address })
}

// Limits on what is read and searched. Each is well above what real libraries need.
const (
	// maxInstruction is the longest that an x86-64 instruction may be, in bytes (Intel SDM vol. 2,
	// section 2.3.11).
	maxInstruction = 15
	// maxFunction is how many bytes of one function are read; the longest of libjvm has 200 kB.
	maxFunction = 1 << 20
	// maxCode is how many bytes of a file's code are scanned; libjvm has 15 to 20 MB.
	maxCode = 256 << 20
	// scanChunk is how many bytes of code are in memory during a scan.
	scanChunk = 1 << 20
	// maxCandidates is how many byte sequences that look like a call are followed. A file with more
	// is crafted: libjvm's most frequent callee has some 20,000.
	maxCandidates = 64 << 10
	// maxMatches is how many functions one name may mean, overloads and clones included.
	maxMatches = 64
	// maxAhead is how many instructions after a function's first one, or after a call, are
	// examined. Compilers put an endbr64 and a few moves before the first push, and a move and a
	// comparison between a call and the jump on its result.
	maxAhead = 8

	// maxLandmark bounds the length of functions that are searched for in a file without symbols,
	// in bytes: Unsafe_Park of JDK 25 has 1,756.
	maxLandmark = 16 << 10
	// maxTexts is how many native methods are compared with the requested one: libjvm has some 500.
	maxTexts = 64 << 10
	// maxTables is how many tables may look like that of JNI: libjvm has two.
	maxTables = 16
	// maxCallees is how many callees or callers of one function are examined: MonitorEnter has a
	// dozen.
	maxCallees = 64
	// maxInflaters is how many callers inflate_and_enter may have: it has three. All code is read
	// for each.
	maxInflaters = 8
	// maxLookups is how many functions without symbols are looked up in a file: for both kinds of
	// waits, some 150.
	maxLookups = 2048
	// maxTails is how many functions in a row may end with a jump to the next:
	// ObjectSynchronizer::fast_enter of JDK 11 to ObjectMonitor::enter.
	maxTails = 3
)
