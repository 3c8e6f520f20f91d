package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

var _ vmruntime.VersionReader = (*Process)(nil)

// Announced names a compilation by what the VM announced of it, which may be cut.
func (p *Process) Announced(c vmruntime.CodeLoad) vmruntime.Frame {
	clean := func(s string) string { return vmstructs.CleanText([]byte(s)) }
	return vmruntime.Frame{Function: functionName(clean(c.Class), clean(c.Name)), Signature: clean(c.Signature), BCI: -1}
}

// Inlined returns the methods that are compiled into a compilation.
func (p *Process) Inlined(site vmruntime.Site) (methods []uint64, names []string, err error) {
	c, err := p.codeAt(site)
	if err != nil {
		return nil, nil, err
	}
	seen := map[uint64]bool{c.method: true}
	for i, from := range c.sources {
		if method := c.scopes.Methods[i]; !seen[method] {
			seen[method] = true
			methods, names = append(methods, method), append(names, from.function)
		}
	}
	return methods, names, nil
}

// States reads the headers of compilations again. What has another version or place by now is freed.
func (p *Process) States(list []vmruntime.Compilation) ([]vmruntime.CodeState, error) {
	var headers vmstructs.Batch
	for i := range list {
		headers.Add(list[i].Addr, p.schema.blob.Header)
	}
	if err := headers.Read(p.memory.Mem); err != nil {
		return nil, fmt.Errorf("states of compilations: %w", err)
	}
	states := make([]vmruntime.CodeState, len(list))
	for i := range list {
		c := &list[i]
		header, ok := headers.Bytes(i)
		if !ok {
			continue // CodeUnknown
		}
		b, err := p.schema.blob.Decode(c.Addr, header)
		switch {
		case err != nil || b.Version() != c.Version || b.Begin != c.Begin || !p.compiled(&b):
			states[i] = vmruntime.CodeFreed
		case b.State == codeInUse:
			states[i] = vmruntime.CodeInUse
		default:
			states[i] = vmruntime.CodeGivenUp
		}
	}
	return states, nil
}

// Traps reads the counts of uncommon traps in methods, from their MethodData.
func (p *Process) Traps(methods []uint64) (map[uint64]vmruntime.Traps, error) {
	s := &p.schema.profile
	size := s.Traps.Length()
	if size == 0 || !s.MethodData.Known {
		return nil, nil
	}
	methods = vmstructs.Distinct(methods)
	var pointers, objects vmstructs.Batch
	for _, m := range methods {
		pointers.Add(s.MethodData.At(m), vmstructs.WordSize)
	}
	if err := pointers.Read(p.memory.Mem); err != nil {
		return nil, fmt.Errorf("uncommon traps: %w", err)
	}
	for i := range methods {
		data, _ := pointers.Word(i)
		objects.Add(data, size)
	}
	if err := objects.Read(p.memory.Mem); err != nil {
		return nil, fmt.Errorf("uncommon traps: %w", err)
	}
	found := make(map[uint64]vmruntime.Traps)
	for i, m := range methods {
		if object, ok := objects.Bytes(i); ok {
			if traps, ok := s.Traps.Decode(m, object); ok {
				found[m] = traps
			}
		}
	}
	return found, nil
}
