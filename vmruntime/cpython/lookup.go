package cpython

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const (
	// maxCodeBytes is the memory that a Process keeps of code objects at most.
	maxCodeBytes = 8 << 20
	// maxPrepared is how many of them are read together: some 3 KB each.
	maxPrepared = 256
)

// A codeKey identifies a code object: one that is freed may leave its address to another.
type codeKey struct {
	addr  uint64
	epoch uint32
}

// GILStub is the PC of a vmruntime.Stub site that stands for a wait for the global interpreter
// lock.
const GILStub = 1

// GILFunction is the name of that site: that of the function of CPython in which threads wait.
const GILFunction = "take_gil"

// Lookup names a site of a sampled stack. An interpreted site's Method is the address of its code
// object and its BCI the index of an instruction. ErrStale if the code object is not any more what
// the kernel side met.
func (p *Process) Lookup(site vmruntime.Site) ([]vmruntime.Frame, error) {
	switch {
	case site.Kind == vmruntime.Stub && site.PC == GILStub:
		return []vmruntime.Frame{{Function: GILFunction, BCI: -1, Tier: vmruntime.TierStub}}, nil
	case site.Kind != vmruntime.Interpreted:
		return nil, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	key := codeKey{site.Method, site.Epoch}
	c, ok := p.codes[key]
	if !ok {
		found, err := p.readCodes([]uint64{site.Method})
		if err != nil {
			return nil, err
		}
		if c = found[site.Method]; c == nil || !p.was(c, site) {
			return nil, vmruntime.ErrStale
		}
		p.keep(key, c)
	}
	return []vmruntime.Frame{p.frame(c, int(site.BCI))}, nil
}

// Prepare reads the code objects of sites that are not known yet, in as few reads as one takes.
func (p *Process) Prepare(sites []vmruntime.Site) {
	wanted := map[codeKey]vmruntime.Site{}
	var addrs []uint64
	flush := func() {
		found, err := p.readCodes(addrs)
		if err != nil {
			found = nil // Lookup tries again
		}
		for key, site := range wanted {
			if c := found[key.addr]; c != nil && p.was(c, site) {
				p.keep(key, c)
			}
		}
		clear(wanted)
		addrs = nil
	}
	for _, site := range sites {
		key := codeKey{site.Method, site.Epoch}
		_, known := p.codes[key]
		_, again := wanted[key]
		if site.Kind != vmruntime.Interpreted || known || again {
			continue
		}
		wanted[key] = site
		if addrs = append(addrs, site.Method); len(addrs) == maxPrepared {
			flush()
		}
	}
	if len(addrs) > 1 {
		flush()
	}
}

// keep keeps a code object, and forgets the others when they are too many.
func (p *Process) keep(key codeKey, c *code) {
	if p.epoch == nil {
		return
	}
	if p.bytes+c.bytes() > maxCodeBytes {
		clear(p.codes)
		p.bytes = 0
	}
	p.codes[key] = c
	p.bytes += c.bytes()
}

// was reports whether c, which was just read, is what the sampled frame ran.
func (p *Process) was(c *code, site vmruntime.Site) bool {
	now := site.Epoch
	if p.epoch != nil {
		now = p.epoch()
	}
	var seen vmruntime.SeenMethod
	known := false
	if p.seen != nil {
		seen, known = p.seen(site.Method)
	}
	if !known {
		return now == site.Epoch // no code object has changed since, as far as any was met
	}
	return c.id.seenAs(seen) && now-site.Epoch <= now-seen.Since // epochs wrap around
}

// frame names a place in c.
func (p *Process) frame(c *code, index int) vmruntime.Frame {
	f := vmruntime.Frame{Function: c.function, File: c.file, BCI: max(index, -1), Tier: vmruntime.TierInterpreter}
	if index >= 0 || !p.layout.FreeThreaded { // there, threads run copies of the instructions
		f.Line = lineAt(c.lines, p.version.lineFormat(), c.first, index)
	}
	return f
}
