package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Site is one place of a probe in a file.
type Site struct {
	Offset       uint64 // in the file, bytes
	RefCtrOffset uint64 // of the probe's semaphore in the file, exactly as its note has it; 0 if none
	Cookie       uint64 // by which the program knows the site
	// OwnsStack says that the code there is known to keep nothing below the stack pointer, or is never executed. Unless it
	// is set, Attach wants a proof where it matters: see probesite.Finder.OwnsStack.
	OwnsStack bool
	// Load is where the arguments of compiled__method__load are; nil for other probes. Probes gives the cookies to these.
	Load *bpf.LoadSite
}

// A Uprobe is a program in the two forms that kernels want: for uprobe.multi links (6.6 and later), and for others.
type Uprobe struct {
	Multi, Single *ebpf.Program
}

// Uprobes attaches programs to places in files.
type Uprobes struct {
	single bool // the kernel has no uprobe.multi links
}

// NewUprobes tries out what the kernel has.
func NewUprobes() Uprobes {
	return Uprobes{single: features.HaveBPFLinkUprobeMulti() != nil}
}

// Multi reports whether uprobe.multi links are used; single probes need CAP_SYS_ADMIN.
func (u Uprobes) Multi() bool { return !u.single }

// Attach attaches p to all sites of file, for the process pid alone, or for every process that maps the file if pid
// is 0. Single probes cannot be confined to a process (the kernel would confine them to a thread): they serve all
// processes whatever pid is. The caller closes the links; on an error there is none. The kernel takes the probes away
// when the agent ends, however it ends.
//
// Fails with probesite.ErrRedZone if one of the places is a NOP that this kernel replaces by a call, in a function that
// the call could damage. Nothing is attached then: some sites of a probe without the others would count too little.
func (u Uprobes) Attach(file *os.File, pid int, p Uprobe, sites []Site) (_ []link.Link, err error) {
	if len(sites) == 0 {
		return nil, nil
	}
	if err := u.guard(file, sites); err != nil {
		return nil, err
	}
	ex, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open file for probes: %w", err)
	}
	if !u.single {
		l, err := ex.UprobeMulti(nil, p.Multi, multiOptions(sites, pid))
		if err != nil {
			return nil, explainSemaphore(err, sites)
		}
		return []link.Link{l}, nil
	}
	return attachSingle(ex, 0, p, sites)
}

// AttachProcess is Attach for the process pid alone on all kernels, if it has one thread. Single probes are then confined
// to the address space of its first thread.
func (u Uprobes) AttachProcess(file *os.File, pid int, p Uprobe, sites []Site) ([]link.Link, error) {
	if !u.single {
		return u.Attach(file, pid, p, sites)
	}
	if err := u.guard(file, sites); err != nil {
		return nil, err
	}
	ex, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open file for probes: %w", err)
	}
	return attachSingle(ex, pid, p, sites)
}

func attachSingle(ex *link.Executable, pid int, p Uprobe, sites []Site) ([]link.Link, error) {
	var links []link.Link
	for _, s := range sites {
		l, err := ex.Uprobe("", p.Single, &link.UprobeOptions{PID: pid, Address: s.Offset, RefCtrOffset: s.RefCtrOffset, Cookie: s.Cookie})
		if err != nil {
			err = fmt.Errorf("%w (this kernel has no uprobe.multi: single probes need CAP_SYS_ADMIN)", explainSemaphore(err, sites))
			return nil, errors.Join(err, closeLinks(links))
		}
		links = append(links, l)
	}
	return links, nil
}

// explainSemaphore says what EINVAL means where probes have semaphores: the kernel keeps one offset for each place
// (uprobe_register in kernel/events/uprobes.c), and refuses a probe with another.
func explainSemaphore(err error, sites []Site) error {
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	for _, s := range sites {
		if s.RefCtrOffset != 0 {
			return fmt.Errorf("%w: another tool may have attached there without the probe's semaphore (the kernel then logs "+
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

func closeLinks(links []link.Link) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
