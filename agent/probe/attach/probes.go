package attach

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Sites are the probes of one build of a VM's library.
type Sites struct {
	Load, CodeUnload, ClassUnload []Site
}

// Probes attaches the code-map programs to libraries. A library is attached once, for every process
// that maps it. The kernel removes the probes when the agent ends in any way. Several goroutines
// may call its methods.
type Probes struct {
	objects *bpf.Objects
	uprobes Uprobes

	mu       sync.Mutex
	slots    loadSlots
	attached map[*Attached]struct{}
}

// An Attached is one library with its probes. It keeps the library's file system from being
// unmounted.
type Attached struct {
	links []link.Link
	loads []bpf.LoadSite // sites whose slots it holds
}

// NewProbes returns a Probes without probes. It tries whether the kernel has uprobe.multi links.
func NewProbes(o *bpf.Objects) *Probes {
	return &Probes{objects: o, uprobes: NewUprobes(), slots: newLoadSlots(bpf.MaxProbeSites),
		attached: map[*Attached]struct{}{}}
}

// Attach attaches all sites of lib. On an error none is attached.
func (p *Probes) Attach(lib *os.File, sites Sites) (*Attached, error) {
	a := &Attached{}
	load, err := p.register(a, sites.Load)
	if err != nil {
		return nil, errors.Join(err, p.Detach(a))
	}
	c := &p.objects.CodeMap
	for _, probe := range []struct {
		name  string
		prog  *ebpf.Program
		sites []Site
	}{
		{"compiled__method__load", c.Load, load},
		{"compiled__method__unload", c.CodeUnload, sites.CodeUnload},
		{"class__unloaded", c.ClassUnload, sites.ClassUnload},
	} {
		links, err := p.uprobes.Attach(lib, 0, probe.prog, probe.sites)
		if err != nil {
			err = fmt.Errorf("attach to %s: %w", probe.name, err)
			return nil, errors.Join(err, p.Detach(a))
		}
		a.links = append(a.links, links...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached[a] = struct{}{}
	return a, nil
}

// Detach removes the probes of one library, which takes some 50 ms. When it returns, no program
// runs for them any more: the kernel waits for those that do. So their slots may be reused.
func (p *Probes) Detach(a *Attached) error {
	err := CloseLinks(a.links)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, site := range a.loads {
		p.slots.give(site)
	}
	a.links, a.loads = nil, nil
	delete(p.attached, a)
	return err
}

// register passes the argument locations of each load site to the kernel side; the cookie of a site
// refers to them.
func (p *Probes) register(a *Attached, sites []Site) ([]Site, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sites = slices.Clone(sites)
	for i := range sites {
		slot, fresh, ok := p.slots.take(*sites[i].Load)
		if !ok {
			return nil, fmt.Errorf("processes run with more than %d different builds of a VM at once",
				bpf.MaxProbeSites)
		}
		a.loads = append(a.loads, *sites[i].Load)
		if fresh {
			if err := p.objects.CodeMap.LoadSites.Put(slot, sites[i].Load); err != nil {
				return nil, fmt.Errorf("register probe site: %w", err)
			}
		}
		sites[i].Cookie = uint64(slot)
	}
	return sites, nil
}

// Close removes all probes.
func (p *Probes) Close() error {
	p.mu.Lock()
	left := make([]*Attached, 0, len(p.attached))
	for a := range p.attached {
		left = append(left, a)
	}
	p.mu.Unlock()
	var errs []error
	for _, a := range left {
		errs = append(errs, p.Detach(a))
	}
	return errors.Join(errs...)
}

// loadSlots are the slots of the kernel side's table of load sites. Sites with the same argument
// locations share a slot: so many containers with the same library need no more than one of them
// does.
type loadSlots struct {
	used map[bpf.LoadSite]*loadSlot
	free []uint32
}

type loadSlot struct {
	number uint32
	users  int
}

func newLoadSlots(n uint32) loadSlots {
	s := loadSlots{used: map[bpf.LoadSite]*loadSlot{}}
	for i := n; i > 0; i-- {
		s.free = append(s.free, i-1)
	}
	return s
}

// take returns the slot of a site; fresh says that it must be written. ok is false if all are in
// use.
func (s *loadSlots) take(site bpf.LoadSite) (number uint32, fresh, ok bool) {
	if slot := s.used[site]; slot != nil {
		slot.users++
		return slot.number, false, true
	}
	last := len(s.free) - 1
	if last < 0 {
		return 0, false, false
	}
	number, s.free = s.free[last], s.free[:last]
	s.used[site] = &loadSlot{number: number, users: 1}
	return number, true, true
}

// give releases what one take took.
func (s *loadSlots) give(site bpf.LoadSite) {
	slot := s.used[site]
	if slot.users--; slot.users == 0 {
		delete(s.used, site)
		s.free = append(s.free, slot.number)
	}
}
