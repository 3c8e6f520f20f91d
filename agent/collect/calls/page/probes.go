package page

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// maxSites bounds the search for probes in a guest's files.
const maxSites = 64 // sites in all of them; one file has half a dozen

var searched = attach.MappedLimits{Files: 512, Size: 1 << 30}

// probes attaches to the files of processes. Each process has probes of its own, so that other
// processes that map the same files hit none.
type probes struct {
	objects *bpf.BurstObjects
	uprobes attach.Uprobes
	root    proc.Root
	pool    *proc.Pool
	count   func(error) // counts a file that was not opened, by its error

	mu   sync.Mutex
	free []uint32 // free site numbers
}

// firstSearch bounds the search for probes in a process's files, which is the first thing that the
// pool does for it.
const firstSearch = 2 * time.Second

func newProbes(o *bpf.BurstObjects, root proc.Root, pool *proc.Pool, count func(error)) *probes {
	p := &probes{objects: o, uprobes: attach.NewUprobes(), root: root, pool: pool, count: count}
	for n := uint32(bpf.MaxBurstSites); n > 0; n-- {
		p.free = append(p.free, n-1)
	}
	return p
}

// An attachment is the probes of one guest.
type attachment struct {
	probes *probes
	pid    int
	sites  []uint32 // their numbers
	links  []link.Link
	found  map[bpf.BurstProbe]int
}

// attach attaches to vmprof's probes in all files that the process has mapped. The files may be in
// a file system that the process controls, so this happens in the pool; probes attached only after
// the deadline are removed again.
func (p *probes) attach(pid int) (*attachment, error) {
	done := make(chan *attachment, 1)
	err := p.pool.Do(context.Background(), pid, func() error {
		a, err := p.search(pid)
		done <- a
		return err
	})
	if err == nil {
		return <-done, nil
	}
	if errors.Is(err, proc.ErrTimeout) {
		go func() {
			if a := <-done; a != nil {
				a.close()
			}
		}()
	}
	return nil, err
}

// search does the work of attach.
func (p *probes) search(pid int) (*attachment, error) {
	a := &attachment{probes: p, pid: pid, found: map[bpf.BurstProbe]int{}}
	var failed error
	unread, err := attach.MappedFiles(p.root, pid, searched, func(m *attach.MappedFile) error {
		failed = errors.Join(failed, a.add(m)) // another file may have all probes
		return nil
	})
	for _, u := range unread {
		if proc.Refused(u.Err) {
			p.count(u.Err)
		}
		if !errors.Is(u.Err, elffile.ErrUnsupported) {
			failed = errors.Join(failed, u.Err)
		}
	}
	err = errors.Join(failed, err)
	if a.found[bpf.ProbeCall] == 0 || a.found[bpf.ProbeThread] == 0 {
		if err == nil {
			err = refusedNoProbes
		}
		a.close()
		return nil, err
	}
	return a, nil // files that could not be read were not needed
}

// add attaches to the probes in a mapped file, if it has any.
func (a *attachment) add(m *attach.MappedFile) error {
	all, err := m.ELF.Probes()
	if err != nil {
		return fmt.Errorf("read probes of %q: %w", m.Path, err)
	}
	sites, kinds, err := a.register(m.ELF.Machine(), m.File, all)
	if err != nil {
		return fmt.Errorf("probes of %q: %w", m.Path, err)
	}
	links, err := a.probes.uprobes.Attach(m.File, a.pid, a.probes.objects.BurstHit, sites)
	if err != nil {
		return fmt.Errorf("attach to probes of %q: %w", m.Path, err)
	}
	a.links = append(a.links, links...)
	for _, kind := range kinds { // counted only here: a probe that cannot be attached to counts as missing
		a.found[kind]++
	}
	return nil
}

// take returns the number of a free site.
func (p *probes) take() (number uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return 0, false
	}
	number, p.free = p.free[last], p.free[:last]
	return number, true
}

// close detaches, which takes the kernel tens of milliseconds, and frees the sites.
func (a *attachment) close() {
	for _, l := range a.links {
		l.Close() // there is nothing to be done about an error: the descriptor is gone
	}
	a.probes.mu.Lock()
	defer a.probes.mu.Unlock()
	a.probes.free = append(a.probes.free, a.sites...)
	a.links, a.sites = nil, nil
}

// register passes the locations of the arguments of vmprof's probes to the kernel side. kinds are
// the probes of the sites.
func (a *attachment) register(
	machine elf.Machine, f *os.File, all []elffile.Probe,
) (sites []attach.Site, kinds []bpf.BurstProbe, err error) {
	for _, probe := range all {
		s, err := siteOf(probe)
		if err != nil {
			return nil, nil, err
		}
		if s == nil {
			continue
		}
		// The kernel single-steps other instructions, at a hundred times the cost.
		kind, err := probesite.KindAt(machine, f, probe.Offset)
		if err != nil || kind != probesite.Nop && kind != probesite.Nop5 {
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
		sites = append(sites, attach.Site{Offset: probe.Offset, RefCtrOffset: probe.SemaphoreOffset,
			Cookie: uint64(number)})
	}
	return sites, kinds, nil
}

// siteOf returns the kernel side's description of a probe, nil if the engine does not use that
// probe.
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
