package page

import (
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// register tells the kernel side where the arguments of vmprof's probes are. kinds are the probes of the sites.
func (a *attachment) register(f *os.File, all []elffile.Probe) (sites []attach.Site, kinds []bpf.BurstProbe, err error) {
	for _, probe := range all {
		s, err := siteOf(probe)
		if err != nil {
			return nil, nil, err
		}
		if s == nil {
			continue
		}
		if !isNop(f, probe.Offset) {
			return nil, nil, fmt.Errorf("%s is not at a NOP", probe.Name)
		}
		if len(a.sites) >= maxSites {
			return nil, nil, fmt.Errorf("more than %d sites", maxSites)
		}
		number, ok := a.probes.take()
		if !ok {
			return nil, nil, refusedFull
		}
		a.sites = append(a.sites, number)
		s.Pid = uint32(a.pid)
		if err := a.probes.objects.BurstSites.Put(number, s); err != nil {
			return nil, nil, fmt.Errorf("register site: %w", err)
		}
		kinds = append(kinds, bpf.BurstProbe(s.Probe))
		sites = append(sites, attach.Site{Offset: probe.Offset, RefCtrOffset: probe.SemaphoreOffset, Cookie: uint64(number)})
	}
	return sites, kinds, nil
}

// siteOf is what the kernel side must know of a probe, nil if it is none of those that the engine is for.
func siteOf(p elffile.Probe) (*bpf.BurstSite, error) {
	kind, ok := map[string]bpf.BurstProbe{
		"call": bpf.ProbeCall, "thread": bpf.ProbeThread, "thread_end": bpf.ProbeThreadEnd,
	}[p.Name]
	if p.Provider != "vmprof" || !ok {
		return nil, nil
	}
	s := &bpf.BurstSite{Probe: uint8(kind)}
	args := []*bpf.BurstOperand{&s.First, &s.Second}
	if kind != bpf.ProbeCall {
		args = args[:1]
	}
	if len(p.Args) < len(args) {
		return nil, fmt.Errorf("%s has %d arguments, not %d", p.Name, len(p.Args), len(args))
	}
	for i, to := range args {
		o, err := attach.Operand(p.Args[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		*to = bpf.BurstOperand(o)
	}
	return s, nil
}
