package hotspot

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// stubNames names code that the VM generated for itself, in brackets: no Java method is called so.
//
//	[interpreter: invokevirtual]       a part of the interpreter, as the VM describes it
//	[stub: jint_disjoint_arraycopy]    a stub routine or an intrinsic
//	[stub: resolve_virtual_call]       any other code blob, by its name
//	[vtable stub]                      a call through a virtual or interface table
//	[i2c/c2i adapter]                  between compiled and interpreted code
type stubNames struct {
	codelets pieces
	routines pieces
}

// lookup names the place at pc, which is in a blob of that kind and name.
func (s *stubNames) lookup(p *Process, pc uint64, kind blobKind, name string) (string, error) {
	switch kind {
	case kindVtable:
		return "[vtable stub]", nil
	case kindAdapter:
		return "[i2c/c2i adapter]", nil
	case kindInterpreter:
		if s.codelets == nil {
			var err error
			if s.codelets, err = readCodelets(p.target, &p.schema.stubs); err != nil {
				return "", err
			}
		}
		if codelet, ok := s.codelets.find(pc); ok {
			return "[interpreter: " + codelet.name + "]", nil
		}
		return "[interpreter]", nil
	}
	if routine, ok := s.find(p, pc); ok {
		name = routine.name
	}
	return "[stub: " + strings.TrimSpace(name) + "]", nil
}

// find returns the stub routine that pc is in. The VM generates some of them when they are first needed (JDK 21+), so
// the list is read again when it has none. Without a list, blobs go by their names.
func (s *stubNames) find(p *Process, pc uint64) (piece, bool) {
	routine, ok := s.routines.find(pc)
	if !ok {
		s.load(p)
		routine, ok = s.routines.find(pc)
	}
	return routine, ok
}

// routine returns the first stub routine whose name matches.
func (s *stubNames) routine(p *Process, match func(name string) bool) (piece, bool) {
	s.load(p)
	for _, routine := range s.routines {
		if match(routine.name) {
			return routine, true
		}
	}
	return piece{}, false
}

// load reads the stub routines. One that could not be read is not named, which is no reason to fail.
func (s *stubNames) load(p *Process) {
	if list, ok := p.symbol(symbolStubList); ok {
		s.routines, _ = readRoutines(p.target, list)
	} else {
		s.routines, _ = readEntries(p.target, p.schema.stubs.entries)
	}
}

// isReturnBarrier recognises the stub routine that thaws the callers of a virtual thread's last frame: "Cont thaw
// return barrier" in JDK 21, "cont_returnBarrier" in JDK 25; not the one for exceptions.
func isReturnBarrier(name string) bool {
	name = strings.NewReplacer("_", "", " ", "").Replace(strings.ToLower(name))
	return strings.Contains(name, "returnbarrier") && !strings.Contains(name, "exc")
}

// stub names a piece of generated code.
func (p *Process) stub(site vmruntime.Site) ([]vmruntime.Frame, error) {
	addr, err := p.find(site.PC)
	if err != nil {
		return nil, err
	}
	header, err := p.bytes(addr, p.schema.blob.blobHeader)
	if err != nil {
		return nil, err
	}
	b, err := p.schema.blob.decodeBlob(addr, header)
	if err != nil {
		return nil, err
	}
	if err := p.learn([]uint64{b.name}); err != nil {
		return nil, err
	}
	kind := p.kinds.of(b.name)
	if kind == kindNMethod || kind == kindNative {
		return nil, vmruntime.ErrStale // a stub was here, and made room for a method
	}
	blobName, err := p.string(b.name)
	if err != nil {
		return nil, err
	}
	function, err := p.stubs.lookup(p, site.PC, kind, blobName)
	if err != nil {
		return nil, err
	}
	return []vmruntime.Frame{{Function: function, BCI: -1, Tier: vmruntime.TierStub}}, nil
}
