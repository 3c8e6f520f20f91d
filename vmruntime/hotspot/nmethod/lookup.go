package nmethod

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Lookup names a site of a sampled stack, innermost frame first.
//
// A compilation is identified by its version: what is read from the code cache counts only if it
// has that version before and after it was read. A method is identified by its address, its
// methodinfo.Body and the class epoch: it counts only if no class was unloaded between the sample and
// the end of reading, and if it is what the kernel side met in the interpreter. What is read once
// is kept for later sites. ErrStale if the code or method is gone; a compilation that is remembered
// by name is still one frame then.
func (p *Codes) Lookup(site vmruntime.Site) ([]vmruntime.Frame, error) {
	switch site.Kind {
	case vmruntime.Compiled:
		return p.compilation(site)
	case vmruntime.Interpreted:
		return p.interpreted(site)
	case vmruntime.Stub:
		return p.stub(site)
	}
	return nil, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
}

// maxPrepared is how many compilations and methods Prepare reads side by side. Each takes some
// kilobytes of stack.
const maxPrepared = 64

// Prepare reads the compilations and methods of sites that are not known yet side by side, in as
// few reads as one of them takes, and each method once.
func (p *Codes) Prepare(sites []vmruntime.Site) {
	epoch := p.CurrentEpoch()
	type unknown struct {
		kind  vmruntime.SiteKind
		id    uint64 // version, or address of the method
		epoch uint32
	}
	seen := make(map[unknown]struct{})
	var alive, gone []vmruntime.Site // by methodsAt.alive
	for _, site := range sites {
		u := unknown{kind: site.Kind}
		switch site.Kind {
		case vmruntime.Compiled:
			if _, ok := p.known(site); ok {
				continue
			}
			u.id = uint64(site.Version & codecache.VersionMask)
		case vmruntime.Interpreted:
			if _, ok := p.methods.Get(walked(site)); ok || p.Epoch == nil || unloads(epoch) != unloads(site.Epoch) {
				continue
			}
			u.id, u.epoch = site.Method, site.Epoch
		default:
			continue
		}
		if _, ok := seen[u]; ok {
			continue
		}
		seen[u] = struct{}{}
		if site.Kind == vmruntime.Interpreted || site.Epoch == epoch {
			alive = append(alive, site)
		} else {
			gone = append(gone, site)
		}
	}
	for part := range slices.Chunk(alive, maxPrepared) {
		if p.CurrentEpoch() == epoch { // otherwise Lookup reads the rest
			p.readTogether(part, methodsAt{epoch, true})
		}
	}
	for part := range slices.Chunk(gone, maxPrepared) {
		if p.CurrentEpoch() == epoch {
			p.readTogether(part, methodsAt{epoch, false})
		}
	}
}

// readTogether reads what is at sites. What cannot be read, or was read in more than one epoch, is
// left to Lookup.
func (p *Codes) readTogether(sites []vmruntime.Site, at methodsAt) {
	drafts := make([]*draft, len(sites)) // nil for interpreted frames, and where that fails
	var reads []func()
	for i, site := range sites {
		if site.Kind == vmruntime.Compiled {
			reads = append(reads, func() {
				if d, err := p.draft(site.Version&codecache.VersionMask, site.PC); err == nil {
					drafts[i] = d
				}
			})
		}
	}
	p.Memory.Together(reads...)
	var addrs []uint64
	for i, site := range sites {
		switch {
		case site.Kind == vmruntime.Interpreted:
			addrs = append(addrs, site.Method)
		case drafts[i] == nil:
		case len(addrs)+len(drafts[i].addrs) > maxInlinedMethods: // Lookup reads it alone
			drafts[i] = nil
		default:
			addrs = append(addrs, drafts[i].addrs...)
		}
	}
	methods, err := p.readMethods(addrs, at)
	if err != nil {
		return
	}
	reads = reads[:0]
	for i, d := range drafts {
		if d != nil {
			reads = append(reads, func() {
				if p.confirm(d) != nil {
					drafts[i] = nil
				}
			})
		}
	}
	p.Memory.Together(reads...)
	if p.CurrentEpoch() != at.epoch {
		return
	}
	for i, site := range sites {
		switch d := drafts[i]; {
		case site.Kind == vmruntime.Interpreted && methods[site.Method] != nil:
			_, _ = p.met(site, methods[site.Method])
		case d != nil:
			if c, err := d.complete(methods, nil); err == nil {
				p.byVersion.Add(site.Version&codecache.VersionMask, c)
			}
		}
	}
}

// compilation names a place in compiled code.
func (p *Codes) compilation(site vmruntime.Site) ([]vmruntime.Frame, error) {
	c, err := p.current(site)
	if err == nil {
		return c.frames(site.PC, site.Exact), nil
	}
	if named, ok := p.Versions.Find(site.Version&codecache.VersionMask, site.PC); ok {
		return []vmruntime.Frame{named.frame()}, nil
	}
	return nil, err
}

// known returns the compilation that a site is in, if it was read before.
func (p *Codes) known(site vmruntime.Site) (*code, bool) {
	c, ok := p.byVersion.Get(site.Version & codecache.VersionMask)
	return c, ok && c.contains(site.PC)
}

// current returns the compilation that a site is in. It reads it and the methods in it in one
// epoch: a class that was unloaded meanwhile may have left its methods' memory to others.
func (p *Codes) current(site vmruntime.Site) (*code, error) {
	if c, ok := p.known(site); ok {
		return c, nil
	}
	version := site.Version & codecache.VersionMask
	const attempts = 2 // classes are unloaded in bursts, with long pauses between
	for range attempts {
		epoch := p.CurrentEpoch()
		c, err := p.readCode(version, site.PC, methodsAt{epoch, site.Epoch == epoch})
		if err != nil {
			return nil, err
		}
		if p.CurrentEpoch() == epoch {
			p.byVersion.Add(version, c)
			return c, nil
		}
	}
	return nil, vmruntime.ErrStale
}

// A methodsAt says when methods are read, and whether they were seen at work in that epoch. Between
// the announcement that a class is unloaded, which begins an epoch, and the moment when its memory
// is used again, its methods can still be read: for the sample of the past that speaks of them, but
// not for samples to come.
type methodsAt struct {
	epoch uint32
	alive bool
}

// readMethods reads methods. What is read is kept for others if the methods were alive in that
// epoch, and it has not ended by then. What was kept counts as long as the method is still the
// same.
func (p *Codes) readMethods(addrs []uint64, at methodsAt) (map[uint64]*methodinfo.Method, error) {
	found := make(map[uint64]*methodinfo.Method, len(addrs))
	var kept, missing []uint64
	for _, addr := range vmstructs.Distinct(addrs) {
		if m, ok := p.methods.Get(javavm.Key{Addr: addr, Epoch: at.epoch}); ok && at.alive {
			found[addr] = m
			kept = append(kept, addr)
		} else {
			missing = append(missing, addr)
		}
	}
	r := p.MethodReader()
	for part := range slices.Chunk(kept, maxBodies) {
		bodies, err := r.Bodies(part)
		if err != nil {
			return nil, err
		}
		for _, addr := range part {
			if body, ok := bodies[addr]; !ok || body != found[addr].Body {
				delete(found, addr)
				missing = append(missing, addr)
			}
		}
	}
	for part := range slices.Chunk(missing, maxMethods) {
		read, err := r.Methods(part)
		if err != nil {
			return nil, err
		}
		keep := at.alive && p.Epoch != nil && p.Epoch() == at.epoch
		for addr, m := range read {
			found[addr] = m
			if keep {
				p.methods.Add(javavm.Key{Addr: addr, Epoch: at.epoch}, m)
			}
		}
	}
	return found, nil
}

// Bounds on the methods that are read at once: the ranges of a read are bounded, and so are the
// bytes of all lines.
const (
	maxBodies  = 4096
	maxMethods = 512
)

// walked is the key of the method of a site in the interpreter.
func walked(site vmruntime.Site) javavm.Key {
	return javavm.Key{Addr: site.Method, Epoch: site.Epoch, Walked: true}
}

// interpreted names a frame of the interpreter.
func (p *Codes) interpreted(site vmruntime.Site) ([]vmruntime.Frame, error) {
	m, ok := p.methods.Get(walked(site))
	if !ok {
		epoch := p.CurrentEpoch()
		if p.Epoch != nil && unloads(epoch) != unloads(site.Epoch) {
			return nil, vmruntime.ErrStale
		}
		methods, err := p.readMethods([]uint64{site.Method}, methodsAt{epoch, true})
		// Whatever was read: if a class was unloaded since the sample, it may be of another method.
		if p.Epoch != nil && unloads(p.Epoch()) != unloads(site.Epoch) {
			return nil, vmruntime.ErrStale
		}
		if err != nil {
			return nil, err
		}
		if m, err = p.met(site, methods[site.Method]); err != nil {
			return nil, err
		}
	}
	return []vmruntime.Frame{m.Frame(int(site.BCI), p.Version.Unsigned5Bias())}, nil
}

// met returns the method that was just read at a site in the interpreter, nil if that failed, unless
// the sampled frame was in another one. No class was unloaded since the sample.
func (p *Codes) met(site vmruntime.Site, m *methodinfo.Method) (*methodinfo.Method, error) {
	switch {
	case m == nil && p.gone(site.Method):
		return nil, vmruntime.ErrStale
	case m == nil:
		return nil, fmt.Errorf("method at %#x: %w", site.Method, vmruntime.ErrMalformed)
	case !p.was(m, site):
		return nil, vmruntime.ErrStale
	}
	if p.Epoch != nil {
		p.methods.Add(walked(site), m)
	}
	return m, nil
}

// unloads is how many classes were unloaded, of an epoch.
func unloads(epoch uint32) uint32 { return epoch % vmruntime.EpochChange }

// gone reports whether something else is now where the kernel side met a method.
func (p *Codes) gone(addr uint64) bool {
	if p.Seen == nil {
		return false
	}
	seen, known := p.Seen(addr)
	bodies, err := p.MethodReader().Bodies([]uint64{addr})
	return known && err == nil && bodies[addr].Differs(seen)
}

// was reports whether m, which was just read, is what the sampled frame was in. Classes were not
// unloaded meanwhile, but methods may have been changed.
func (p *Codes) was(m *methodinfo.Method, site vmruntime.Site) bool {
	var seen vmruntime.SeenMethod
	known := false
	if p.Seen != nil {
		seen, known = p.Seen(site.Method)
	}
	if !known { // not by the walker's account, as those of other sources
		return p.Epoch == nil || p.Epoch() == site.Epoch
	}
	if m.Body.Differs(seen) {
		return false
	}
	// Epochs wrap around: those from seen.Since up to now count.
	now := site.Epoch
	if p.Epoch != nil {
		now = p.Epoch()
	}
	return now-site.Epoch <= now-seen.Since
}
