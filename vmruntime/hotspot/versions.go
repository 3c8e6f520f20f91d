package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Described describes a compilation without a read, if its code was read already.
func (p *codes) Described(site vmruntime.Site) (vmruntime.Compilation, error) {
	if c, ok := p.byVersion.get(site.Version & codecache.VersionMask); ok && site.Kind == vmruntime.Compiled &&
		c.contains(site.PC) {
		return p.describe(&c.blob), nil
	}
	return p.Compilation(site)
}

// Announced names a compilation by what the VM announced of it, which may be cut.
func (p *codes) Announced(c vmruntime.CodeLoad) vmruntime.Frame {
	clean := func(s string) string { return vmstructs.CleanText([]byte(s)) }
	return vmruntime.Frame{Function: functionName(clean(c.Class), clean(c.Name)), Signature: clean(c.Signature),
		BCI: -1}
}

// Inlined returns the methods that are compiled into a compilation.
func (p *codes) Inlined(site vmruntime.Site) (methods []uint64, names []string, err error) {
	if site.Kind != vmruntime.Compiled {
		return nil, nil, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	version := site.Version & codecache.VersionMask
	c, ok := p.byVersion.get(version)
	if !ok || !c.contains(site.PC) {
		if c, err = p.readCurrent(version, site); err != nil {
			return nil, nil, err
		}
		p.byVersion.add(version, c)
	}
	seen := map[uint64]bool{c.method: true}
	for i, from := range c.methods {
		if method := c.scopes.Methods[i]; !seen[method] {
			seen[method] = true
			methods, names = append(methods, method), append(names, from.function)
		}
	}
	return methods, names, nil
}

// States reads the state and the version of compilations again. What has another version by now is
// freed.
func (p *codes) States(list []vmruntime.Compilation) ([]vmruntime.CodeState, error) {
	id, state := p.schema.blob.CompileID, p.schema.blob.State
	first := uint64(min(id.Offset, state.Offset))
	size := max(id.End(), state.End()) - first
	var headers vmstructs.Batch
	for i := range list {
		headers.Add(list[i].Addr+first, size)
	}
	if err := headers.Read(p.memory.Mem); err != nil {
		return nil, fmt.Errorf("states of compilations: %w", err)
	}
	id.Offset, state.Offset = id.Offset-uint32(first), state.Offset-uint32(first)
	states := make([]vmruntime.CodeState, len(list))
	for i := range list {
		header, ok := headers.Bytes(i)
		switch {
		case !ok: // CodeUnknown
		case uint32(id.Read(header))&codecache.VersionMask != list[i].Version:
			states[i] = vmruntime.CodeFreed
		case state.ReadSigned(header) == codeInUse:
			states[i] = vmruntime.CodeInUse
		default:
			states[i] = vmruntime.CodeGivenUp
		}
	}
	return states, nil
}
