package nmethod

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Described describes a compilation without a read, if its code was read already.
func (p *Codes) Described(site vmruntime.Site) (vmruntime.Compilation, error) {
	if c, ok := p.byVersion.Get(site.Version & codecache.VersionMask); ok && site.Kind == vmruntime.Compiled &&
		c.contains(site.PC) {
		return p.describe(&c.blob), nil
	}
	return p.Compilation(site)
}

// Announced names a compilation by what the VM announced of it, which may be cut.
func (p *Codes) Announced(c vmruntime.CodeLoad) vmruntime.Frame {
	clean := func(s string) string { return vmstructs.CleanText([]byte(s)) }
	function := methodinfo.FunctionName(clean(c.Class), clean(c.Name))
	return vmruntime.Frame{Function: function, Signature: clean(c.Signature), BCI: -1}
}

// Inlined returns the methods that are compiled into a compilation.
func (p *Codes) Inlined(site vmruntime.Site) (methods []uint64, names []string, err error) {
	if site.Kind != vmruntime.Compiled {
		return nil, nil, fmt.Errorf("site of kind %d: %w", site.Kind, vmruntime.ErrUnknown)
	}
	c, err := p.current(site)
	if err != nil {
		return nil, nil, err
	}
	seen := map[uint64]bool{c.method: true}
	for i, from := range c.methods {
		if method := c.scopes.Methods[i]; !seen[method] {
			seen[method] = true
			methods, names = append(methods, method), append(names, from.Function)
		}
	}
	return methods, names, nil
}

// States reads the state and the version of compilations again. What has another version by now is
// freed.
func (p *Codes) States(list []vmruntime.Compilation) ([]vmruntime.CodeState, error) {
	id, state := p.Schema.Blob.CompileID, p.Schema.Blob.State
	first := uint64(min(id.Offset, state.Offset))
	size := max(id.End(), state.End()) - first
	var headers vmstructs.Batch
	for i := range list {
		headers.Add(list[i].Addr+first, size)
	}
	if err := headers.Read(p.Memory.Mem); err != nil {
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
