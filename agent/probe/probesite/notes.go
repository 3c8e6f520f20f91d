package probesite

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Notes returns the sites of a USDT probe with their operands. There are several if the compiler
// inlined or cloned the code around it. Instructions are not checked: Kind and Emulated describe
// what is there, which should be a NOP. ErrNotFound if the file has no such probe.
func (f *Finder) Notes(provider, name string) ([]Site, error) {
	probes, err := f.file.Probes()
	if err != nil {
		return nil, err
	}
	var sites []Site
	for _, p := range probes {
		if p.Provider != provider || p.Name != name {
			continue
		}
		kind, err := KindAt(f.file.Machine(), f.bytes, p.Offset)
		if err != nil {
			return nil, fmt.Errorf("probe %s:%s: %w", provider, name, err)
		}
		sites = append(sites, Site{
			Offset: p.Offset, RefCtrOffset: p.SemaphoreOffset, Address: p.Location,
			Function: f.around(p.Location), Kind: kind, Emulated: f.emulates(kind), Args: p.Args,
		})
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("probe %s:%s: %w", provider, name, ErrNotFound)
	}
	return sorted(sites), nil
}

// around returns the name of the function at addr, "" if it has none.
func (f *Finder) around(addr uint64) string {
	table, err := f.symbols()
	if err != nil {
		return ""
	}
	i, ok := table.Find(addr)
	if !ok {
		return ""
	}
	return table.Name(i)
}

// arm64Nop is the instruction of USDT probes on arm64; the kernel emulates it
// (arch/arm64/kernel/probes/uprobes.c).
var arm64Nop = []byte{0x1f, 0x20, 0x03, 0xd5}

// KindAt returns the kind of the instruction at an offset of a file for machine. An undecodable one
// is Refused. elffile.ErrUnsupported if machine is neither x86-64 nor arm64; other errors mean that
// the file could not be read.
func KindAt(machine elf.Machine, file io.ReaderAt, offset uint64) (Kind, error) {
	var buffer [maxInstruction]byte
	n, err := file.ReadAt(buffer[:], int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return Refused, fmt.Errorf("read code at offset %#x: %w", offset, err)
	}
	code := buffer[:n]
	switch machine {
	case elf.EM_X86_64:
		if i, err := Decode(code); err == nil {
			return i.Kind, nil
		}
		return Refused, nil
	case elf.EM_AARCH64:
		if bytes.HasPrefix(code, arm64Nop) {
			return Nop, nil
		}
		return Stepped, nil
	}
	return Refused, fmt.Errorf("%v: %w", machine, elffile.ErrUnsupported)
}
