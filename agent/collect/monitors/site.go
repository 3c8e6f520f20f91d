package monitors

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Place identifies where a monitor is entered in one version of a method's code.
type Place struct {
	Address uint64
	Version uint32 // as in vmruntime.Site
}

// A Site is a Place and the data needed to watch it.
type Site struct {
	Place
	kernel bpf.EnterSite
	code   [watched]byte // the code at the time of the search
}

const (
	// watched is how much code at a site is compared to check that it is unchanged: several
	// instructions, up to the exchange of the mark word.
	watched = 24 // bytes
	// maxCode is how much code of one compilation is searched. HotSpot does not compile methods
	// above 8,000 bytes of bytecode (-XX:+DontCompileHugeMethods); the largest observed code has
	// some 200 kB.
	maxCode = 1 << 20
	// maxSites bounds the sites of one compilation.
	maxSites = 64
)

// A VM is what a VM must offer to have its monitors found.
type VM interface {
	vmruntime.JDK
	Compilation(vmruntime.Site) (vmruntime.Compilation, error)
}

// Find returns the sites in a compilation's code, for a JDK of that feature release. The error is
// probesite.ErrLightweightLocking if they are not recognised.
func Find(mem vmruntime.Memory, c vmruntime.Compilation, release int) ([]Site, error) {
	if c.End <= c.Begin || c.End-c.Begin > maxCode {
		return nil, fmt.Errorf("compilation of %d bytes: %w", c.End-c.Begin, vmruntime.ErrMalformed)
	}
	code := make([]byte, c.End-c.Begin)
	if err := mem.Read(c.Begin, code); err != nil {
		return nil, fmt.Errorf("read code: %w", err)
	}
	enters, err := probesite.MonitorEnters(code, c.Begin, release)
	if err != nil {
		return nil, err
	}
	var sites []Site
	for _, e := range enters[:min(len(enters), maxSites)] {
		s := Site{Place: Place{e.Address, c.Version}}
		if s.kernel, err = kernelSite(e); err != nil {
			return nil, err
		}
		if n := copy(s.code[:], code[e.Address-c.Begin:]); n < watched {
			continue // an exchange and the code after it are longer
		}
		sites = append(sites, s)
	}
	return sites, nil
}

// kernelSite encodes the location of the object for the kernel side.
func kernelSite(e probesite.MonitorEnter) (bpf.EnterSite, error) {
	register, err := attach.Operand(elffile.Operand{Kind: elffile.OperandReg, Size: 8, Reg: e.Object})
	if err != nil {
		return bpf.EnterSite{}, fmt.Errorf("object of a monitor: %w", err)
	}
	return bpf.EnterSite{Displacement: e.Disp, Reg: uint32(register.Reg)}, nil
}

// unchanged returns watch.ErrChanged if the code at one of the sites differs by now.
func unchanged(mem vmruntime.Memory, sites []Site) error {
	code := make([]watch.Code, len(sites))
	for i := range sites {
		code[i] = watch.Code{Address: sites[i].Address, Bytes: sites[i].code[:]}
	}
	return watch.CheckCode(mem, code)
}
