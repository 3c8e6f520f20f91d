package probesite

import (
	"debug/elf"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A Finder finds sites in one file. It reads the file when it is asked, and keeps the table of its symbols (3 MB for
// libjvm) for as long as it lives. It is for one goroutine at a time.
type Finder struct {
	// Emulates says which kinds the running kernel emulates. Nil means Kind.Emulated, what all supported ones do.
	Emulates func(Kind) bool

	file  *elffile.File
	bytes io.ReaderAt
	table *elffile.Table // nil until it is needed

	// landmarks are functions without symbols, by the name that they would have. Where there are some, symbols do not say
	// which function an address is in.
	landmarks map[string]function
	lookups   int // of functions without symbols
}

// New returns a finder for a file; bytes are those that it was opened with.
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
