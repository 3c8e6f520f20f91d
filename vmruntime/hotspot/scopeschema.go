package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// scopeSchema leads from an nmethod to its debug information, which lies in one of three ways: all of it behind the
// code (up to JDK 22), positions and scopes in a block of immutable data (from 23 on), pointers in a block of mutable
// data (from 25 on).
type scopeSchema struct {
	pcs                            field // offset of the positions: from the nmethod, or in the immutable data
	scopesBegin, scopesOffset      field // of the scopes: pointer (JDK 9-22), or offset like that of the positions
	dependencies                   field // offset from the nmethod of what follows the positions (up to 22)
	metadata                       field // offset from the nmethod (up to 22), or from its data (23, 24)
	dataOffset, size               field // of CodeBlob
	immutable, immutableSize       field
	mutable, mutableSize, relocate field // relocate: bytes before the pointers
	pcDescSize, pcDescScope        uint64

	// What is known besides, see evidence: optional.
	oopMaps        field // of CodeBlob: pointer to the ImmutableOopMapSet
	oopMapCount    field // of ImmutableOopMapSet, behind which come its pairs
	oopMapsHeader  uint64
	implicitChecks field // offset like that of the positions
}

func newScopeSchema(r *resolver) scopeSchema {
	return scopeSchema{
		pcs:           r.optional("nmethod._scopes_pcs_offset"),
		scopesBegin:   r.optional("CompiledMethod._scopes_data_begin", "nmethod._scopes_data_begin"),
		scopesOffset:  r.optional("nmethod._scopes_data_offset"),
		dependencies:  r.optional("nmethod._dependencies_offset"),
		metadata:      r.optional("nmethod._metadata_offset"),
		dataOffset:    r.optional("CodeBlob._data_offset"),
		size:          r.optional("CodeBlob._size"),
		immutable:     r.optional("nmethod._immutable_data"),
		immutableSize: r.optional("nmethod._immutable_data_size"),
		mutable:       r.optional("CodeBlob._mutable_data"),
		mutableSize:   r.optional("CodeBlob._mutable_data_size"),
		relocate:      r.optional("CodeBlob._relocation_size"),
		pcDescSize:    r.sizes["PcDesc"],
		pcDescScope:   uint64(r.optional("PcDesc._scope_decode_offset").offset),

		oopMaps:        r.optional("CodeBlob._oop_maps"),
		oopMapCount:    r.optional("ImmutableOopMapSet._count"),
		oopMapsHeader:  r.sizes["ImmutableOopMapSet"],
		implicitChecks: r.optional("nmethod._nul_chk_table_offset"),
	}
}

// known reports whether this VM's debug information can be found. Without it, methods are named but not what is
// inlined into them.
func (s *scopeSchema) known() bool {
	if !s.pcs.known || s.pcDescSize != pcDescSize || s.pcDescScope != pcDescScope {
		return false
	}
	if s.immutable.known {
		return s.immutableSize.known && s.scopesOffset.known &&
			(s.mutable.known && s.mutableSize.known && s.relocate.known || s.metadata.known)
	}
	return s.metadata.known && s.dependencies.known && (s.scopesBegin.known || s.scopesOffset.known)
}

// header is how many bytes of an nmethod hold all fields.
func (s *scopeSchema) header() uint64 {
	return lastEnd(s.pcs, s.scopesBegin, s.scopesOffset, s.dependencies, s.metadata, s.dataOffset, s.size, s.immutable,
		s.immutableSize, s.mutable, s.mutableSize, s.relocate, s.oopMaps, s.implicitChecks)
}

// A span is a piece of the guest's memory.
type span struct{ begin, end uint64 }

// spans finds the three areas from the header of the nmethod at addr.
func (s *scopeSchema) spans(addr uint64, header []byte) (pcs, scopes, metadata span) {
	if s.immutable.known {
		base := s.immutable.of(header)
		pcs = span{base + s.pcs.of(header), base + s.scopesOffset.of(header)}
		scopes = span{base + s.scopesOffset.of(header), base + s.immutableSize.of(header)}
		if s.mutable.known {
			base := s.mutable.of(header)
			return pcs, scopes, span{base + s.relocate.of(header), base + s.mutableSize.of(header)}
		}
		data := addr + s.dataOffset.of(header)
		return pcs, scopes, span{data + s.metadata.of(header), addr + s.size.of(header)}
	}
	pcs = span{addr + s.pcs.of(header), addr + s.dependencies.of(header)}
	scopes = span{addr + s.scopesOffset.of(header), pcs.begin}
	if s.scopesBegin.known {
		scopes.begin = s.scopesBegin.of(header)
	}
	return pcs, scopes, span{addr + s.metadata.of(header), scopes.begin}
}

// readScopes reads the debug information of the nmethod at addr.
func readScopes(t target, s *scopeSchema, addr uint64, header []byte) (raw rawScopes, err error) {
	pcs, scopes, metadata := s.spans(addr, header)
	for _, area := range []struct {
		span
		to *[]byte
	}{{pcs, &raw.pcs}, {scopes, &raw.scopes}, {metadata, &raw.metadata}} {
		if area.end < area.begin || area.end-area.begin > maxScopeBytes {
			return rawScopes{}, fmt.Errorf("debug information from %#x to %#x: %w", area.begin, area.end, vmruntime.ErrMalformed)
		}
		if *area.to, err = t.bytes(area.begin, area.end-area.begin); err != nil {
			return rawScopes{}, err
		}
	}
	return raw, nil
}
