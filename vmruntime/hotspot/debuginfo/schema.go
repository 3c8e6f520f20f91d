package debuginfo

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Schema leads from an nmethod to its debug information, which lies in one of three ways: all of it
// behind the code (up to JDK 22), positions and scopes in a block of immutable data (from 23 on),
// pointers in a block of mutable data (from 25 on).
type Schema struct {
	// pcs is the offset of the positions: from the nmethod, or in the immutable data.
	pcs vmstructs.Field
	// scopesBegin and scopesOffset lead to the scopes: a pointer (JDK 9-22), or an offset like that
	// of the positions.
	scopesBegin, scopesOffset      vmstructs.Field
	dependencies                   vmstructs.Field // offset from the nmethod of what follows the positions (up to 22)
	metadata                       vmstructs.Field // offset from the nmethod (up to 22), or from its data (23, 24)
	dataOffset, size               vmstructs.Field // fields of CodeBlob
	Immutable, immutableSize       vmstructs.Field
	mutable, mutableSize, relocate vmstructs.Field // relocate: bytes before the pointers
	pcDescSize, pcDescScope        uint64

	// What is known besides, see nmethod/evidence.go: optional.
	OopMaps        vmstructs.Field // field of CodeBlob: pointer to the ImmutableOopMapSet
	OopMapCount    vmstructs.Field // field of ImmutableOopMapSet, behind which come its pairs
	OopMapsHeader  uint64
	ImplicitChecks vmstructs.Field // offset like that of the positions
}

// NewSchema looks up the fields that lead to debug information. None is required: see Schema.Known.
func NewSchema(r *vmstructs.Resolver) Schema {
	return Schema{
		pcs:           r.Optional("nmethod._scopes_pcs_offset"),
		scopesBegin:   r.Optional("CompiledMethod._scopes_data_begin", "nmethod._scopes_data_begin"),
		scopesOffset:  r.Optional("nmethod._scopes_data_offset"),
		dependencies:  r.Optional("nmethod._dependencies_offset"),
		metadata:      r.Optional("nmethod._metadata_offset"),
		dataOffset:    r.Optional("CodeBlob._data_offset"),
		size:          r.Optional("CodeBlob._size"),
		Immutable:     r.Optional("nmethod._immutable_data"),
		immutableSize: r.Optional("nmethod._immutable_data_size"),
		mutable:       r.Optional("CodeBlob._mutable_data"),
		mutableSize:   r.Optional("CodeBlob._mutable_data_size"),
		relocate:      r.Optional("CodeBlob._relocation_size"),
		pcDescSize:    r.Sizes["PcDesc"],
		pcDescScope:   uint64(r.Optional("PcDesc._scope_decode_offset").Offset),

		OopMaps:        r.Optional("CodeBlob._oop_maps"),
		OopMapCount:    r.Optional("ImmutableOopMapSet._count"),
		OopMapsHeader:  r.Sizes["ImmutableOopMapSet"],
		ImplicitChecks: r.Optional("nmethod._nul_chk_table_offset"),
	}
}

// Known reports whether this VM's debug information can be found. Without it, methods are named but
// not what is inlined into them.
func (s *Schema) Known() bool {
	if !s.pcs.Known || s.pcDescSize != pcDescSize || s.pcDescScope != pcDescScope {
		return false
	}
	if s.Immutable.Known {
		return s.immutableSize.Known && s.scopesOffset.Known &&
			(s.mutable.Known && s.mutableSize.Known && s.relocate.Known || s.metadata.Known)
	}
	return s.metadata.Known && s.dependencies.Known && (s.scopesBegin.Known || s.scopesOffset.Known)
}

// Header is how many bytes of an nmethod hold all fields.
func (s *Schema) Header() uint64 {
	return vmstructs.LastEnd(s.pcs, s.scopesBegin, s.scopesOffset, s.dependencies, s.metadata, s.dataOffset, s.size,
		s.Immutable,
		s.immutableSize, s.mutable, s.mutableSize, s.relocate, s.OopMaps, s.ImplicitChecks)
}

// A span is a piece of memory.
type span struct{ begin, end uint64 }

// spans finds the three areas from the header of the nmethod at addr.
func (s *Schema) spans(addr uint64, header []byte) (pcs, scopes, metadata span) {
	if s.Immutable.Known {
		base := s.Immutable.Read(header)
		pcs = span{base + s.pcs.Read(header), base + s.scopesOffset.Read(header)}
		scopes = span{base + s.scopesOffset.Read(header), base + s.immutableSize.Read(header)}
		if s.mutable.Known {
			base := s.mutable.Read(header)
			return pcs, scopes, span{base + s.relocate.Read(header), base + s.mutableSize.Read(header)}
		}
		data := addr + s.dataOffset.Read(header)
		return pcs, scopes, span{data + s.metadata.Read(header), addr + s.size.Read(header)}
	}
	pcs = span{addr + s.pcs.Read(header), addr + s.dependencies.Read(header)}
	scopes = span{addr + s.scopesOffset.Read(header), pcs.begin}
	if s.scopesBegin.Known {
		scopes.begin = s.scopesBegin.Read(header)
	}
	return pcs, scopes, span{addr + s.metadata.Read(header), scopes.begin}
}

// Read reads the debug information of the nmethod at addr.
func Read(t vmstructs.Reader, s *Schema, addr uint64, header []byte) (raw RawScopes, err error) {
	if gathered := t.GatherInto(new(vmstructs.Batch), s.Need(addr, header, &raw, &err)); gathered != nil {
		return RawScopes{}, gathered
	}
	return raw, err
}

// Need reads the debug information of the nmethod at addr, along with what else is needed. raw refers
// to it in the batch. It sets err if that fails.
func (s *Schema) Need(addr uint64, header []byte, raw *RawScopes, err *error) vmstructs.Need {
	return func(b *vmstructs.Batch) (take func()) {
		pcs, scopes, metadata := s.spans(addr, header)
		areas := [...]span{pcs, scopes, metadata}
		for _, area := range areas {
			if area.end < area.begin || area.end-area.begin > maxScopeBytes {
				*err = fmt.Errorf("debug information from %#x to %#x: %w", area.begin, area.end, vmruntime.ErrMalformed)
				return func() {}
			}
		}
		first := len(b.Ranges)
		for _, area := range areas {
			b.Add(area.begin, area.end-area.begin)
		}
		return func() {
			for i, area := range areas {
				if _, ok := b.Bytes(first + i); !ok && area.end > area.begin {
					*err = fmt.Errorf("debug information from %#x to %#x cannot be read: %w", area.begin, area.end,
						vmruntime.ErrMalformed)
					return
				}
			}
			raw.PCs, _ = b.Bytes(first)
			raw.Scopes, _ = b.Bytes(first + 1)
			raw.Metadata, _ = b.Bytes(first + 2)
		}
	}
}
