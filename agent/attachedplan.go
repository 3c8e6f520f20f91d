package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
)

// An attachedPlan are the probes of one plan in one library, which are attached and taken away together.
type attachedPlan struct {
	eventPlan
	file    *os.File        // of the library, to attach again
	sites   [][]attach.Site // by probe
	cookies []uint32
	links   []link.Link // none while the plan rests

	every uint32        // hits of which one is told
	fixed bool          // so many are wanted, whatever it costs
	perf  bool          // of perf events: nothing is attached to the library, and nothing rests
	hits  uint64        // when they were last read
	rest  time.Duration // the last one
	until time.Duration // CLOCK_MONOTONIC: a rest ends
	why   error         // of the last rest; nil if there was none
}

// find finds the sites of all probes and gives them cookies.
func (p *attachedPlan) find(finder *probesite.Finder, register func() (uint32, error)) error {
	for _, probe := range p.probes {
		found, err := probe.find(finder)
		if err != nil {
			return err
		}
		var sites []attach.Site
		for _, s := range found {
			cookie, err := register()
			if err != nil {
				return err
			}
			if probe.configure != nil {
				if err := probe.configure(cookie, finder, s); err != nil {
					return fmt.Errorf("%s: %w", probe.name, err)
				}
			}
			p.cookies = append(p.cookies, cookie)
			sites = append(sites, attach.Site{Offset: s.Offset, RefCtrOffset: s.RefCtrOffset, Cookie: uint64(cookie)})
		}
		p.sites = append(p.sites, sites)
	}
	return nil
}

// attach attaches all probes, or none.
func (p *attachedPlan) attach(u attach.Uprobes) error {
	for i, probe := range p.probes {
		links, err := u.Attach(p.file, 0, attach.Uprobe{Multi: probe.program, Single: probe.program}, p.sites[i])
		if err != nil {
			return errors.Join(fmt.Errorf("attach to %s: %w", probe.name, err), p.detach())
		}
		p.links = append(p.links, links...)
	}
	return nil
}

// detach takes all probes away.
func (p *attachedPlan) detach() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

func (p *attachedPlan) resting() bool { return p.links == nil && !p.perf }

func (p *attachedPlan) close() error {
	err := p.detach()
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
	}
	return err
}
