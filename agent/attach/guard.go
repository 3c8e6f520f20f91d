package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// guard reads the places of probes in a file before probes are put there, and refuses those at which the kernel's form of a
// probe can damage the program. Every uprobe of the agent passes here.
//
// The reading matters by itself: it brings the pages into the page cache. Otherwise the kernel reads them while a program
// maps the file, with the lock on its memory held, and has been seen to warn of that (uprobe_mmap), which stops machines
// that run with panic_on_warn.
func (u Uprobes) guard(file *os.File, sites []Site) error {
	for _, s := range sites {
		const longest = 15 // bytes of an instruction
		var code [longest]byte
		n, err := file.ReadAt(code[:], int64(s.Offset))
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read code at offset %#x: %w", s.Offset, err)
		}
		if s.RefCtrOffset != 0 {
			var counter [2]byte
			if _, err := file.ReadAt(counter[:], int64(s.RefCtrOffset)); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read the semaphore at offset %#x: %w", s.RefCtrOffset, err)
			}
		}
		if s.OwnsStack || runtime.GOARCH != "amd64" {
			continue
		}
		i, err := probesite.Decode(code[:n])
		if err != nil || !i.NeedsOwnStack() {
			continue // what it cannot decode the kernel does not replace
		}
		if err := u.proveStack(file, s.Offset); err != nil {
			return fmt.Errorf("NOP of %d bytes at offset %#x: %w", i.Len, s.Offset, err)
		}
	}
	return nil
}

// errReplaced explains probesite.ErrRedZone to those who can do something about it.
var errReplaced = errors.New("Linux 6.18 and later replaces that NOP by a call, which writes below the stack pointer: " +
	"rebuild the program with a one-byte nop at the probe (with systemtap's sys/sdt.h or the current vmprof.h), " +
	"or record the entry of a function (func:SYMBOL)")

// proveStack fails unless a NOP of several bytes at an offset of a file is safe: its function keeps nothing below the stack
// pointer, or the kernel does not replace such NOPs, or there is no red zone as the code is of 32 bits.
func (u Uprobes) proveStack(file *os.File, offset uint64) error {
	st, err := file.Stat()
	if err != nil {
		return err
	}
	lib, err := elffile.Open(file, st.Size())
	if errors.Is(err, elffile.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the function around it: %w", err)
	}
	address, ok := lib.OffsetToAddress(offset)
	if !ok {
		return fmt.Errorf("find the function around it: the file has no code there: %w", elffile.ErrMalformed)
	}
	err = probesite.New(lib, file).OwnsStack(address)
	if err == nil || !ReplacesNops() {
		return nil
	}
	if errors.Is(err, probesite.ErrRedZone) {
		return fmt.Errorf("%w (%w)", err, errReplaced)
	}
	return fmt.Errorf("find the function around it: %w", err)
}
