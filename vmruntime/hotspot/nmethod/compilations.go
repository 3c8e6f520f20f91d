package nmethod

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// codeInUse is the state of an nmethod that new calls enter; all others are on the way out, or in.
const codeInUse = 0

// noEntryBCI is nmethod._entry_bci of what is entered at its begin: InvocationEntryBci.
const noEntryBCI = -1

// Compilations visits all compilations in the code cache, wrappers of native methods included.
func (p *Codes) Compilations(visit func(vmruntime.Compilation) bool) error {
	heaps, shift, err := codecache.ReadHeaps(p.Memory, &p.Schema.Cache) // what is in use of them has changed
	if err != nil {
		return fmt.Errorf("code cache: %w", err)
	}
	now := codecache.Cache{Memory: &p.Memory, Schema: p.Cache.Schema, Heaps: heaps, Shift: shift}
	done := false
	return p.walk(&now, func(b *codecache.Blob) {
		if !done && p.Compiled(b) {
			done = !visit(p.describe(b))
		}
	})
}

// Compilation describes the one that a compiled site is in.
func (p *Codes) Compilation(site vmruntime.Site) (vmruntime.Compilation, error) {
	if site.Kind != vmruntime.Compiled {
		return vmruntime.Compilation{}, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	addr, header, err := p.Cache.FindHeader(site.PC, p.headerSize())
	if err != nil {
		return vmruntime.Compilation{}, err
	}
	b, err := p.decodeHeader(addr, header, site.Version&codecache.VersionMask)
	if err != nil {
		return vmruntime.Compilation{}, err
	}
	return p.describe(&b), nil
}

// Current returns the compilation that calls of each method enter now. It is read through the
// method itself (Method::_code), which knows no other.
func (p *Codes) Current(methods []uint64) (map[uint64]vmruntime.Compilation, error) {
	at := p.Method.Code
	if !at.Known {
		return nil, nil
	}
	var pointers vmstructs.Batch
	methods = vmstructs.Distinct(methods)
	for _, m := range methods {
		pointers.Add(m+uint64(at.Offset), vmstructs.WordSize)
	}
	if err := pointers.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("current code: %w", err)
	}
	var headers vmstructs.Batch
	addrs := make([]uint64, len(methods))
	for i := range methods {
		addrs[i], _ = pointers.Word(i)
		headers.Add(addrs[i], p.Schema.Blob.Header)
	}
	if err := headers.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("current code: %w", err)
	}
	current := map[uint64]vmruntime.Compilation{}
	for i, m := range methods {
		header, ok := headers.Bytes(i)
		if !ok {
			continue
		}
		b, err := p.Schema.Blob.Decode(addrs[i], header)
		if err != nil || b.Method != m || b.State != codeInUse {
			continue // nothing, or not any more
		}
		if err := p.learn([]uint64{b.Name}); err != nil {
			return nil, fmt.Errorf("current code: %w", err)
		}
		if p.Compiled(&b) {
			current[m] = p.describe(&b)
		}
	}
	return current, nil
}

func (p *Codes) describe(b *codecache.Blob) vmruntime.Compilation {
	c := vmruntime.Compilation{
		Addr: b.Addr, Begin: b.Begin, End: b.End,
		Entry: b.Entry, VerifiedEntry: b.Verified,
		FrameComplete: b.Begin + uint64(max(b.FrameComplete, 0)),
		Method:        b.Method,
		Version:       b.Version(),
		Level:         int(b.Level),
		Tier:          b.Tier(),
		EntryBCI:      noEntryBCI,
		InUse:         b.State == codeInUse,
	}
	if p.Schema.Blob.EntryBCI.Known {
		c.EntryBCI = int(b.EntryBCI)
	}
	return c
}

// Scopes is what is inlined at a compiled site, innermost first.
func (p *Codes) Scopes(site vmruntime.Site) ([]vmruntime.Scope, error) {
	c, err := p.codeAt(site)
	if err != nil {
		return nil, err
	}
	return c.places(site.PC, site.Exact), nil
}

// codeAt returns the decoded compilation that a site is in, and remembers the names of its methods
// for Profiles.
func (p *Codes) codeAt(site vmruntime.Site) (*code, error) {
	if site.Kind != vmruntime.Compiled {
		return nil, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	c, err := p.current(site)
	if err != nil {
		return nil, err
	}
	if !c.introduced {
		c.introduced = true
		p.introduce(c.method, c.own.Function, c.own.Signature)
		for i, from := range c.methods {
			p.introduce(c.scopes.Methods[i], from.Function, from.Signature)
		}
	}
	return c, nil
}

// places is the chain of frames, without names.
func (c *code) places(pc uint64, exact bool) []vmruntime.Scope {
	at := c.placeOf(pc, exact)
	if at.Scope == debuginfo.NoScope || !exact && !at.Recorded { // no guess is good enough for a call site
		return []vmruntime.Scope{{Method: c.method, BCI: -1}}
	}
	var places []vmruntime.Scope
	for i := at.Scope; i != debuginfo.NoScope && len(places) < debuginfo.MaxInlining; i = c.scopes.Scopes[i].Sender {
		s := &c.scopes.Scopes[i]
		places = append(places, vmruntime.Scope{Method: c.scopes.Methods[s.Method], BCI: int(s.BCI)})
	}
	if !at.Located {
		places[0].BCI = -1
	}
	return places
}
