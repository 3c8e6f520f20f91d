package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

var _ vmruntime.CallCounter = (*Process)(nil)

// codeInUse is the state of an nmethod that new calls enter; all others are on the way out, or in.
const codeInUse = 0

// noEntryBCI is nmethod._entry_bci of what is entered at its begin: InvocationEntryBci.
const noEntryBCI = -1

// Compilations visits all compilations in the code cache, wrappers of native methods included.
func (p *Process) Compilations(visit func(vmruntime.Compilation) bool) error {
	heaps, shift, err := readHeaps(p.memory, &p.schema.cache) // what is in use of them has changed
	if err != nil {
		return fmt.Errorf("code cache: %w", err)
	}
	now := codeCache{memory: &p.memory, schema: p.codeCache.schema, heaps: heaps, shift: shift}
	done := false
	return now.walk(&p.schema.blob, func(blobs []blob) error {
		names := make([]uint64, len(blobs))
		for i := range blobs {
			names[i] = blobs[i].name
		}
		if err := p.learn(names); err != nil {
			return err
		}
		for i := range blobs {
			if b := &blobs[i]; !done && p.compiled(b) {
				done = !visit(p.describe(b))
			}
		}
		return nil
	})
}

// Compilation describes the one that a compiled site is in.
func (p *Process) Compilation(site vmruntime.Site) (vmruntime.Compilation, error) {
	if site.Kind != vmruntime.Compiled {
		return vmruntime.Compilation{}, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	addr, err := p.codeCache.find(site.PC)
	if err != nil {
		return vmruntime.Compilation{}, err
	}
	_, b, err := p.readHeader(addr, site.Version&versionMask)
	if err != nil {
		return vmruntime.Compilation{}, err
	}
	return p.describe(&b), nil
}

// Current returns the compilation that calls of each method enter now. It is read through the method itself
// (Method::_code), which knows no other.
func (p *Process) Current(methods []uint64) (map[uint64]vmruntime.Compilation, error) {
	at := p.schema.method.code
	if !at.known {
		return nil, nil
	}
	var pointers batch
	methods = distinct(methods)
	for _, m := range methods {
		pointers.add(m+uint64(at.offset), wordSize)
	}
	if err := pointers.read(p.memory.mem); err != nil {
		return nil, fmt.Errorf("current code: %w", err)
	}
	var headers batch
	addrs := make([]uint64, len(methods))
	for i := range methods {
		addrs[i], _ = pointers.word(i)
		headers.add(addrs[i], p.schema.blob.header)
	}
	if err := headers.read(p.memory.mem); err != nil {
		return nil, fmt.Errorf("current code: %w", err)
	}
	current := map[uint64]vmruntime.Compilation{}
	for i, m := range methods {
		header, ok := headers.bytes(i)
		if !ok {
			continue
		}
		b, err := p.schema.blob.decodeBlob(addrs[i], header)
		if err != nil || b.method != m || b.state != codeInUse {
			continue // nothing, or not any more
		}
		if err := p.learn([]uint64{b.name}); err != nil {
			return nil, fmt.Errorf("current code: %w", err)
		}
		if p.compiled(&b) {
			current[m] = p.describe(&b)
		}
	}
	return current, nil
}

func (p *Process) describe(b *blob) vmruntime.Compilation {
	c := vmruntime.Compilation{
		Begin: b.begin, End: b.end,
		Entry: b.entry, VerifiedEntry: b.verified,
		FrameComplete: b.begin + uint64(max(b.frameComplete, 0)),
		Method:        b.method,
		Version:       b.version(),
		Level:         int(b.level),
		Tier:          b.tier(),
		EntryBCI:      noEntryBCI,
		InUse:         b.state == codeInUse,
	}
	if p.schema.blob.entryBCI.known {
		c.EntryBCI = int(b.entryBCI)
	}
	return c
}

// Scopes is what is inlined at a compiled site, innermost first.
func (p *Process) Scopes(site vmruntime.Site) ([]vmruntime.Scope, error) {
	c, err := p.codeAt(site)
	if err != nil {
		return nil, err
	}
	return c.places(site.PC, site.Exact), nil
}

// codeAt returns the decoded compilation that a site is in, and remembers the names of its methods for Profiles.
func (p *Process) codeAt(site vmruntime.Site) (*code, error) {
	if site.Kind != vmruntime.Compiled {
		return nil, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	version := site.Version & versionMask
	c, ok := p.codes.get(version)
	if !ok || !c.contains(site.PC) {
		var err error
		if c, err = p.readCurrent(version, site); err != nil {
			return nil, err
		}
		p.codes.add(version, c)
	}
	if !c.introduced {
		c.introduced = true
		p.introduce(c.method, c.own)
		for i, from := range c.sources {
			p.introduce(c.scopes.methods[i], from)
		}
	}
	return c, nil
}

// introduce remembers who a method is, so that Profiles notices when another one lies at its address.
func (p *Process) introduce(method uint64, from *source) {
	if _, ok := p.callers.get(method); !ok {
		p.callers.add(method, &calling{function: from.function, signature: from.signature})
	}
}

// places is the chain of frames, without names.
func (c *code) places(pc uint64, exact bool) []vmruntime.Scope {
	at := c.placeOf(pc, exact)
	if at.scope == noScope {
		return []vmruntime.Scope{{Method: c.method, BCI: -1}}
	}
	var places []vmruntime.Scope
	for i := at.scope; i != noScope && len(places) < maxInlining; i = c.scopes.scopes[i].sender {
		s := &c.scopes.scopes[i]
		places = append(places, vmruntime.Scope{Method: c.scopes.methods[s.method], BCI: int(s.bci)})
	}
	if !at.located {
		places[0].BCI = -1
	}
	return places
}
