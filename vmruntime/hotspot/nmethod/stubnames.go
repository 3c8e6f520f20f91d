package nmethod

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// stubNames names code that the VM generated for itself, in brackets: no Java method is called so.
//
//	[interpreter: invokevirtual]       a part of the interpreter, as the VM describes it
//	[stub: jint_disjoint_arraycopy]    a stub routine or an intrinsic
//	[stub: resolve_virtual_call]       any other code blob, by its name
//	[vtable stub]                      a call through a virtual or interface table
//	[i2c/c2i adapter]                  between compiled and interpreted code
type stubNames struct {
	codelets codecache.Pieces   // pieces of the interpreter
	routines codecache.Routines // routines in other blobs
	searched map[uint64]bool    // blobs that were there when routines was read
}

// lookup names the place at pc, which is in b.
func (s *stubNames) lookup(p *Codes, pc uint64, b *codecache.Blob) (string, error) {
	switch p.Kinds.Lookup(b.Name) {
	case codecache.KindVtable:
		return "[vtable stub]", nil
	case codecache.KindAdapter:
		return "[i2c/c2i adapter]", nil
	case codecache.KindInterpreter:
		if s.codelets == nil {
			var err error
			if s.codelets, err = codecache.ReadCodelets(p.Memory, &p.Schema.Stubs); err != nil {
				return "", err
			}
		}
		if codelet, ok := s.codelets.Find(pc); ok {
			return "[interpreter: " + codelet.Name + "]", nil
		}
		return "[interpreter]", nil
	}
	if routine, ok := s.find(p, pc, b); ok {
		// What a stub for upcalls calls has its name: upcall_stub_load_target. A stack has that of
		// the stub once for each upcall.
		return "[stub: " + strings.TrimPrefix(routine.Name, codecache.UpcallName+"_") + "]", nil
	}
	if p.Schema.Blob.IsAdapter(p.Memory, b.Addr) {
		return "[i2c/c2i adapter]", nil
	}
	name, err := p.Memory.Text(b.Name)
	return "[stub: " + name + "]", err
}

// find returns the stub routine that pc is in, which is in b. The VM generates some routines when
// they are first needed (JDK 21+), each time in a new blob, so it is seen for a blob that is new
// whether the list has grown.
func (s *stubNames) find(p *Codes, pc uint64, b *codecache.Blob) (codecache.Piece, bool) {
	if len(s.searched) > codecache.MaxKinds {
		s.searched = nil
	}
	if !s.searched[b.Addr] {
		s.load(p)
		if s.searched == nil {
			s.searched = make(map[uint64]bool)
		}
		s.searched[b.Addr] = true
	}
	return s.routines.Find(pc)
}

// routine returns the first stub routine whose name matches.
func (s *stubNames) routine(p *Codes, match func(name string) bool) (codecache.Piece, bool) {
	s.load(p)
	for _, routine := range s.routines.Pieces {
		if match(routine.Name) {
			return routine, true
		}
	}
	return codecache.Piece{}, false
}

// load reads the stub routines. Without them (a stripped libjvm) blobs go by their names: no reason
// to fail.
func (s *stubNames) load(p *Codes) {
	if list, ok := p.Symbol(javavm.SymbolStubList); ok {
		s.routines.Read(p.Memory, list)
	}
}

// isReturnBarrier recognises the stub routine that thaws the callers of a virtual thread's last
// frame: "Cont thaw return barrier" in JDK 21, "cont_returnBarrier" in JDK 25; not the one for
// exceptions.
func isReturnBarrier(name string) bool {
	name = strings.NewReplacer("_", "", " ", "").Replace(strings.ToLower(name))
	return strings.Contains(name, "returnbarrier") && !strings.Contains(name, "exc")
}

// ReturnBarrier is the address of the stub that isReturnBarrier recognises, 0 if there is none.
func (p *Codes) ReturnBarrier() uint64 {
	routine, _ := p.stubs.routine(p, isReturnBarrier)
	return routine.Begin
}

// stub names a piece of generated code.
func (p *Codes) stub(site vmruntime.Site) ([]vmruntime.Frame, error) {
	addr, header, err := p.Cache.FindHeader(site.PC, p.Schema.Blob.BlobHeader)
	if err != nil {
		return nil, err
	}
	b, err := p.Schema.Blob.Decode(addr, header)
	if err != nil {
		return nil, err
	}
	if err := p.learn([]uint64{b.Name}); err != nil {
		return nil, err
	}
	switch kind := p.Kinds.Lookup(b.Name); {
	case kind == codecache.KindNMethod && p.Layout.Kinds.NMethod == 0, kind == codecache.KindNative &&
		p.Layout.Kinds.Native == 0:
		// It is the first of its kind, which the kernel side took for a stub, as Refresh has not
		// found that kind yet.
		return p.firstCompilation(site)
	case kind == codecache.KindNMethod, kind == codecache.KindNative:
		return nil, vmruntime.ErrStale // a stub was here, and made room for a method
	}
	function, err := p.stubs.lookup(p, site.PC, &b)
	if err != nil {
		return nil, err
	}
	return []vmruntime.Frame{{Function: function, BCI: -1, Tier: vmruntime.TierStub}}, nil
}

// firstCompilation names a place in compiled code whose compile id was not read with the sample.
func (p *Codes) firstCompilation(site vmruntime.Site) ([]vmruntime.Frame, error) {
	addr, header, err := p.Cache.FindHeader(site.PC, p.headerSize())
	if err != nil {
		return nil, err
	}
	b, err := p.Schema.Blob.Decode(addr, header)
	if err != nil {
		return nil, err
	}
	site.Kind, site.Version = vmruntime.Compiled, b.Version()
	return p.compilation(site)
}
