package probes

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
)

// An attachedPlan is the probes of one plan in one library. They are attached and detached
// together.
type attachedPlan struct {
	eventPlan
	file    *os.File        // the library, to attach again; it keeps the file system from being unmounted
	found   [][]foundSite   // by probe; plans of single processes share them
	sites   [][]attach.Site // by probe, with their cookies
	cookies []uint32
	links   []link.Link // none while the plan is not observed
	lacks   []string    // what optional probes would have recorded that have no place, a sentence each

	process *guest.Process // the only one that it observes; nil for all that map the library
	all     *attachedPlan  // the plan for all processes, if process is set
	files   *fileProbes    // it is one of these; nil otherwise
	off     bool           // it observes nothing any more, as processes have plans of their own
	removed bool           // its probes are being detached, or have been

	library string           // its path in a process that uses it; "" for perf events
	users   []*guest.Process // those that use the library and are there; none once it is removed: others keep it longer

	idle     bool          // no process that is known maps the library: hits are of others, which have their own probes
	every    uint32        // hits of which one is recorded
	fixed    bool          // so many are wanted, whatever it costs
	perf     bool          // a plan of perf events: nothing is attached to the library, and it is observed all the time
	hits     uint64        // hits when they were last read
	recorded uint64        // hits that were to be recorded, when extra was last computed
	freed    uint64        // those among them that found a free monitor
	releases uint64        // records of releases of locks then
	extra    float64       // how many more records a hit had recently than the one that it may have
	rate     float64       // hits a second, in the last slice, if the plan is not observed all the time
	duty     budget.Duty   // when the plan is observed
	slicedAt time.Duration // when it was last observed all the time, if it is not
	cover    fold.Coverage // when it was observed
	turn     uint32        // how many times its probes were attached
}

// A foundSite is the place of a probe, and what the kernel side must know there.
type foundSite struct {
	probesite.Site
	setting setting // or nil
}

// find finds the sites of all probes. It reads the library's file.
func (p *attachedPlan) find(finder *probesite.Finder) error {
	for _, probe := range p.probes {
		sites, err := probe.find(finder)
		if err != nil && probe.optional != "" {
			p.lacks = append(p.lacks, fmt.Sprintf("%s is not recorded: %v", probe.optional, err))
			sites, err = nil, nil
		}
		if err != nil {
			return err
		}
		var found []foundSite
		for _, s := range sites {
			f := foundSite{Site: s}
			if probe.configure != nil {
				if f.setting, err = probe.configure(finder, s); err != nil {
					return fmt.Errorf("%s: %w", probe.name, err)
				}
			}
			found = append(found, f)
		}
		p.found = append(p.found, found)
	}
	return nil
}

// register assigns cookies to all sites. After an error p.cookies also has those assigned before.
func (p *attachedPlan) register(next func() (uint32, error)) error {
	for i, found := range p.found {
		var sites []attach.Site
		for _, s := range found {
			cookie, err := next()
			if err != nil {
				return err
			}
			p.cookies = append(p.cookies, cookie)
			if s.setting != nil {
				if err := s.setting(cookie); err != nil {
					return fmt.Errorf("%s: %w", p.probes[i].name, err)
				}
			}
			sites = append(sites, attach.Site{Offset: s.Offset, RefCtrOffset: s.RefCtrOffset, Cookie: uint64(cookie)})
		}
		p.sites = append(p.sites, sites)
	}
	return nil
}

// attach attaches all probes, or none.
func (p *attachedPlan) attach(u attach.Uprobes) error {
	for i, probe := range p.probes {
		if len(p.sites[i]) == 0 {
			continue
		}
		pid := 0
		if p.process != nil {
			pid = p.process.PID
		}
		links, err := u.Attach(p.file, pid, probe.program, p.sites[i])
		if err != nil {
			return errors.Join(fmt.Errorf("attach to %s: %w", probe.name, err), p.detach())
		}
		p.links = append(p.links, links...)
	}
	return nil
}

// detach removes all probes.
func (p *attachedPlan) detach() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// silent reports whether no hits are to be recorded now.
func (p *attachedPlan) silent() bool { return !p.duty.Always() && !p.duty.On }

func (p *attachedPlan) close() error {
	err := p.detach()
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
		p.file = nil
	}
	return err
}
