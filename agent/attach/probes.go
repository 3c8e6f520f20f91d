package attach

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Sites are the probes of one build of libjvm.
type Sites struct {
	Load, CodeUnload, ClassUnload []Site
}

// Probes attaches the code-map programs to libraries. A library is attached once, for every process that maps it;
// the kernel takes the probes away when the agent ends, however it ends.
type Probes struct {
	objects *bpf.Objects
	uprobes Uprobes
	cookies uint32 // load sites given out
	links   []link.Link
}

// NewProbes returns a Probes without probes. Whether the kernel has uprobe.multi links is tried out.
func NewProbes(o *bpf.Objects) *Probes {
	return &Probes{objects: o, uprobes: NewUprobes()}
}

// Multi tells whether uprobe.multi links are used; single probes need CAP_SYS_ADMIN.
func (p *Probes) Multi() bool { return p.uprobes.Multi() }

// Attach attaches all sites of lib. On an error none of them is.
func (p *Probes) Attach(lib *os.File, sites Sites) error {
	load, err := p.register(sites.Load)
	if err != nil {
		return err
	}
	c := &p.objects.CodeMap
	var links []link.Link
	for _, probe := range []struct {
		name  string
		prog  Uprobe
		sites []Site
	}{
		{"compiled__method__load", Uprobe{c.LoadMulti, c.LoadSingle}, load},
		{"compiled__method__unload", Uprobe{c.CodeUnloadMulti, c.CodeUnloadSingle}, sites.CodeUnload},
		{"class__unloaded", Uprobe{c.ClassUnloadMulti, c.ClassUnloadSingle}, sites.ClassUnload},
	} {
		more, err := p.uprobes.Attach(lib, 0, probe.prog, probe.sites)
		if err != nil {
			err = fmt.Errorf("attach to %s: %w", probe.name, err)
			return errors.Join(err, closeLinks(links))
		}
		links = append(links, more...)
	}
	p.links = append(p.links, links...)
	return nil
}

// register tells the kernel side where the arguments of each load site are; the cookie of a site finds it again.
func (p *Probes) register(sites []Site) ([]Site, error) {
	sites = slices.Clone(sites)
	for i := range sites {
		if p.cookies >= bpf.MaxProbeSites {
			return nil, fmt.Errorf("more than %d builds of libjvm have probes: restart the agent to forget the old ones", bpf.MaxProbeSites)
		}
		if err := p.objects.CodeMap.LoadSites.Put(p.cookies, sites[i].Load); err != nil {
			return nil, fmt.Errorf("register probe site: %w", err)
		}
		sites[i].Cookie = uint64(p.cookies)
		p.cookies++
	}
	return sites, nil
}

// Close takes all probes away.
func (p *Probes) Close() error {
	err := closeLinks(p.links)
	p.links = nil
	return err
}
