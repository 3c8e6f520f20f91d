package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Site is one place of a probe in a file.
type Site struct {
	Offset       uint64        // in the file, bytes
	RefCtrOffset uint64        // of the probe's semaphore in the file, exactly as its note has it; 0 if none
	Load         *bpf.LoadSite // where the arguments of compiled__method__load are; nil for the unload probes
}

// Sites are the probes of one build of libjvm.
type Sites struct {
	Load, CodeUnload, ClassUnload []Site
}

// Probes attaches the code-map programs to libraries. A library is attached once, for every process that maps it;
// the kernel takes the probes away when the agent ends, however it ends.
type Probes struct {
	objects *bpf.Objects
	single  bool   // the kernel has no uprobe.multi links
	cookies uint32 // load sites given out
	links   []link.Link
}

// NewProbes returns a Probes without probes. Whether the kernel has uprobe.multi links is tried out.
func NewProbes(o *bpf.Objects) *Probes {
	return &Probes{objects: o, single: features.HaveBPFLinkUprobeMulti() != nil}
}

// Multi tells whether uprobe.multi links are used; single probes need CAP_SYS_ADMIN.
func (p *Probes) Multi() bool { return !p.single }

// Attach attaches all sites of lib. On an error none of them is.
func (p *Probes) Attach(lib *os.File, sites Sites) (err error) {
	ex, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", lib.Fd()))
	if err != nil {
		return fmt.Errorf("open library for probes: %w", err)
	}
	before := len(p.links)
	defer func() {
		if err != nil {
			for _, l := range p.links[before:] {
				l.Close()
			}
			p.links = p.links[:before]
		}
	}()
	cookies, err := p.register(sites.Load)
	if err != nil {
		return err
	}
	c := &p.objects.CodeMap
	if err := p.attach(ex, sites.Load, cookies, c.LoadMulti, c.LoadSingle); err != nil {
		return fmt.Errorf("attach to compiled__method__load: %w", err)
	}
	if err := p.attach(ex, sites.CodeUnload, nil, c.CodeUnloadMulti, c.CodeUnloadSingle); err != nil {
		return fmt.Errorf("attach to compiled__method__unload: %w", err)
	}
	if err := p.attach(ex, sites.ClassUnload, nil, c.ClassUnloadMulti, c.ClassUnloadSingle); err != nil {
		return fmt.Errorf("attach to class__unloaded: %w", err)
	}
	return nil
}

// register tells the kernel side where the arguments of each load site are; the cookie of a site finds it again.
func (p *Probes) register(sites []Site) ([]uint64, error) {
	var cookies []uint64
	for _, s := range sites {
		if p.cookies >= bpf.MaxProbeSites {
			return nil, fmt.Errorf("more than %d builds of libjvm have probes: restart the agent to forget the old ones", bpf.MaxProbeSites)
		}
		if err := p.objects.CodeMap.LoadSites.Put(p.cookies, s.Load); err != nil {
			return nil, fmt.Errorf("register probe site: %w", err)
		}
		cookies = append(cookies, uint64(p.cookies))
		p.cookies++
	}
	return cookies, nil
}

func (p *Probes) attach(ex *link.Executable, sites []Site, cookies []uint64, multi, single *ebpf.Program) error {
	if len(sites) == 0 {
		return nil
	}
	if !p.single {
		l, err := ex.UprobeMulti(nil, multi, multiOptions(sites, cookies))
		if err != nil {
			return err
		}
		p.links = append(p.links, l)
		return nil
	}
	for i, s := range sites {
		opts := &link.UprobeOptions{Address: s.Offset, RefCtrOffset: s.RefCtrOffset}
		if cookies != nil {
			opts.Cookie = cookies[i]
		}
		l, err := ex.Uprobe("", single, opts)
		if err != nil {
			return fmt.Errorf("%w (this kernel has no uprobe.multi: single probes need CAP_SYS_ADMIN)", err)
		}
		p.links = append(p.links, l)
	}
	return nil
}

func multiOptions(sites []Site, cookies []uint64) *link.UprobeMultiOptions {
	o := &link.UprobeMultiOptions{Cookies: cookies}
	semaphores := false
	for _, s := range sites {
		o.Addresses = append(o.Addresses, s.Offset)
		o.RefCtrOffsets = append(o.RefCtrOffsets, s.RefCtrOffset)
		semaphores = semaphores || s.RefCtrOffset != 0
	}
	if !semaphores {
		o.RefCtrOffsets = nil
	}
	return o
}

// Close takes all probes away.
func (p *Probes) Close() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}
