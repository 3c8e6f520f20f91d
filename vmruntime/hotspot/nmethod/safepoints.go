package nmethod

import (
	"debug/elf"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
)

// Safepoints reads the polls of a compilation, and the places that its calls of Java methods return
// to.
func (p *Codes) Safepoints(of vmruntime.Compilation) ([]vmruntime.Safepoint, error) {
	if p.Build.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("polls are not known on %v yet: %w", p.Build.Machine, vmruntime.ErrUnknown)
	}
	if size := of.End - of.Begin; of.End < of.Begin || size > maxCodeBytes {
		return nil, fmt.Errorf("%d bytes of code: %w", size, vmruntime.ErrMalformed)
	}
	version := of.Version & codecache.VersionMask
	header, before, err := p.readHeader(of.Addr, version)
	if err != nil {
		return nil, err
	}
	if before.Begin != of.Begin || before.End != of.End {
		return nil, vmruntime.ErrStale
	}
	list, readErr := p.decodeSafepoints(&of, header)
	if _, after, err := p.readHeader(of.Addr, version); err != nil {
		return nil, err
	} else if !after.Same(before) {
		return nil, vmruntime.ErrStale
	}
	return list, readErr
}

// decodeSafepoints decodes what the header of a compilation leads to.
func (p *Codes) decodeSafepoints(of *vmruntime.Compilation, header []byte) (list []vmruntime.Safepoint, err error) {
	if !p.Schema.scopes.Known() {
		return nil, fmt.Errorf("debug information: %w", vmruntime.ErrUnknown)
	}
	raw, err := debuginfo.Read(p.Memory, &p.Schema.scopes, of.Addr, header)
	if err != nil {
		return nil, err
	}
	table, err := debuginfo.Decode(raw, p.Version.Unsigned5Bias())
	if err != nil {
		return nil, err
	}
	code, err := p.Memory.Bytes(of.Begin, of.End-of.Begin)
	if err != nil {
		return nil, err
	}
	mapped, err := p.safepoints(header) // nil if not known
	if err != nil {
		return nil, err
	}
	held := 0
	for i, at := range table.Positions {
		if at.Scope == debuginfo.NoScope || at.Offset < 0 || int(at.Offset) >= len(code) || mapped != nil &&
			!mapped.contains(at.Offset) {
			continue
		}
		kind := vmruntime.PollSafepoint
		if !isPoll(code[at.Offset:]) {
			to, called := calledBefore(code, of.Begin, at.Offset)
			if !called || (to < of.Begin || to >= of.End) && !p.leadsToJava(to) {
				continue
			}
			kind = vmruntime.CallSafepoint
		}
		s := vmruntime.Safepoint{
			PC: of.Begin + uint64(at.Offset), Kind: kind, Scopes: scopesFrom(table, at.Scope),
			Locals: raw.Locals(raw.ScopeAt(i), p.Version.Unsigned5Bias()),
		}
		if held += len(s.Scopes) + len(s.Locals); held > maxSafepointData {
			return nil, fmt.Errorf("more than %d scopes and variables at safepoints: %w", maxSafepointData,
				vmruntime.ErrMalformed)
		}
		list = append(list, s)
	}
	return list, nil
}

// maxSafepointData bounds the scopes and variables of all safepoints of a compilation: thousands of
// safepoints have tens of each. Each position, scope and variable is bounded, but their product is
// gigabytes.
const maxSafepointData = 1 << 20

// scopesFrom is the chain from a scope outwards.
func scopesFrom(t *debuginfo.Table, scope int32) (chain []vmruntime.Scope) {
	for i := scope; i != debuginfo.NoScope && len(chain) < debuginfo.MaxInlining; i = t.Scopes[i].Sender {
		chain = append(chain, vmruntime.Scope{Method: t.Methods[t.Scopes[i].Method], BCI: int(t.Scopes[i].BCI)})
	}
	return chain
}

// isPoll reports whether code begins with test [...], eax: what both compilers poll with in loops,
// through a register, or up to JDK 9 relative to the instruction pointer. The poll before a return
// differs (see inEpilogue), and has no debug information.
func isPoll(code []byte) bool {
	const testInstruction, registerOnly, eax = 0x85, 3, 0
	if len(code) > 0 && code[0] == insREXB32 {
		code = code[1:]
	}
	return len(code) >= 2 && code[0] == testInstruction && code[1]>>6 != registerOnly && code[1]>>3&7 == eax
}
