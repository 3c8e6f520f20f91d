package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A Site is one place of a probe in a file.
type Site struct {
	Offset       uint64 // in the file, bytes
	RefCtrOffset uint64 // position of the probe's semaphore in the file, exactly as in its note; 0 if none
	Cookie       uint64 // identifies the site to the program
	// OwnsStack says that the code there is known to keep nothing below the stack pointer, or is
	// never executed. If it is not set, Attach requires a proof where it matters: see
	// probesite.Finder.OwnsStack.
	OwnsStack bool
	// Load is the argument locations of compiled__method__load; nil for other probes. Probes
	// assigns the cookies of these.
	Load *bpf.LoadSite
}

// Uprobes attaches programs to places in files.
type Uprobes struct {
	single bool // the kernel has no uprobe.multi links
}

// NewUprobes finds out what the kernel supports.
func NewUprobes() Uprobes {
	return Uprobes{single: features.HaveBPFLinkUprobeMulti() != nil}
}

// Multi reports whether uprobe.multi links are used; single probes need CAP_SYS_ADMIN.
func (u Uprobes) Multi() bool { return !u.single }

// Attach attaches p to all sites of file, for the process pid, or for every process that maps the
// file if pid is 0. p is for the kind of probes that Multi reports, as bpf.Load has it. Where probes
// cannot be confined to a process (FiltersByPID), they serve all processes whatever pid is: so p
// looks at the process id. The caller closes the links; on an error there are none. The kernel
// removes the probes when the agent ends in any way.
//
// Fails with probesite.ErrRedZone if one of the places is a NOP that this kernel replaces by a
// call, in a function that the call could damage. Then nothing is attached: some sites of a probe
// without the others would count too little.
func (u Uprobes) Attach(file *os.File, pid int, p *ebpf.Program, sites []Site) (_ []link.Link, err error) {
	if len(sites) == 0 {
		return nil, nil
	}
	if u.single {
		return u.attachSingle(file, 0, p, sites)
	}
	if pid != 0 && !u.FiltersByPID() {
		pid = 0
	}
	return u.attachMulti(file, pid, p, sites)
}

// AttachProcess is Attach for the process pid alone on all kernels, if it has one thread. Probes
// are then confined to that thread or its address space.
func (u Uprobes) AttachProcess(file *os.File, pid int, p *ebpf.Program, sites []Site) ([]link.Link, error) {
	if len(sites) == 0 {
		return nil, nil
	}
	if u.single {
		return u.attachSingle(file, pid, p, sites)
	}
	return u.attachMulti(file, pid, p, sites)
}

// open returns a file to attach to, whose sites may be probed.
func (u Uprobes) open(file *os.File, sites []Site) (*link.Executable, error) {
	if err := u.guard(file, sites); err != nil {
		return nil, err
	}
	ex, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open file for probes: %w", err)
	}
	return ex, nil
}

func (u Uprobes) attachMulti(file *os.File, pid int, p *ebpf.Program, sites []Site) ([]link.Link, error) {
	ex, err := u.open(file, sites)
	if err != nil {
		return nil, err
	}
	l, err := ex.UprobeMulti(nil, p, multiOptions(sites, pid))
	if err != nil {
		return nil, explainSemaphore(err, sites)
	}
	return []link.Link{l}, nil
}

func (u Uprobes) attachSingle(file *os.File, pid int, p *ebpf.Program, sites []Site) ([]link.Link, error) {
	ex, err := u.open(file, sites)
	if err != nil {
		return nil, err
	}
	var links []link.Link
	for _, s := range sites {
		l, err := ex.Uprobe("", p, &link.UprobeOptions{PID: pid, Address: s.Offset, RefCtrOffset: s.RefCtrOffset,
			Cookie: s.Cookie})
		if err != nil {
			err = fmt.Errorf("%w (this kernel has no uprobe.multi: single probes need CAP_SYS_ADMIN)",
				explainSemaphore(err, sites))
			return nil, errors.Join(err, CloseLinks(links))
		}
		links = append(links, l)
	}
	return links, nil
}

// explainSemaphore explains EINVAL for probes with semaphores: the kernel keeps one offset for each
// place (uprobe_register in kernel/events/uprobes.c), and refuses a probe with another.
func explainSemaphore(err error, sites []Site) error {
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	for _, s := range sites {
		if s.RefCtrOffset != 0 {
			return fmt.Errorf("%w: another tool may have attached there without the probe's semaphore (the kernel "+
				"then logs "+
				"\"ref_ctr_offset mismatch\"): end that tool first", err)
		}
	}
	return err
}

func multiOptions(sites []Site, pid int) *link.UprobeMultiOptions {
	o := &link.UprobeMultiOptions{PID: uint32(pid)}
	semaphores := false
	for _, s := range sites {
		o.Addresses = append(o.Addresses, s.Offset)
		o.Cookies = append(o.Cookies, s.Cookie)
		o.RefCtrOffsets = append(o.RefCtrOffsets, s.RefCtrOffset)
		semaphores = semaphores || s.RefCtrOffset != 0
	}
	if !semaphores {
		o.RefCtrOffsets = nil
	}
	return o
}

// CloseLinks closes all of the links, even if some fail.
func CloseLinks(links []link.Link) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// guard reads the places of probes in a file before probes are put there, and refuses those at
// which the kernel's form of a probe can damage the program. Every uprobe of the agent passes
// through it.
//
// The reading itself is important: it brings the pages into the page cache. Otherwise the kernel
// reads them while a program maps the file, with the lock on its memory held. That has been seen to
// cause a warning (uprobe_mmap), which stops machines that run with panic_on_warn.
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
			continue // the kernel does not replace what it cannot decode
		}
		if err := u.proveStack(file, s.Offset); err != nil {
			return fmt.Errorf("NOP of %d bytes at offset %#x: %w", i.Len, s.Offset, err)
		}
	}
	return nil
}

// errReplaced explains probesite.ErrRedZone to users who can rebuild the program.
var errReplaced = errors.New("the kernel (Linux 6.18 and later) replaces that NOP by a call, which writes below the " +
	"stack pointer: " +
	"rebuild the program with a one-byte nop at the probe (with systemtap's sys/sdt.h or the current vmprof.h), " +
	"or record the entry of a function (func:SYMBOL)")

// proveStack fails unless a NOP of several bytes at an offset of a file is safe: its function keeps
// nothing below the stack pointer, or the kernel does not replace such NOPs, or there is no red
// zone as the code is 32-bit.
func (u Uprobes) proveStack(file *os.File, offset uint64) error {
	lib, err := elffile.OpenFile(file)
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
