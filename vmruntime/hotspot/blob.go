package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// blobSchema decodes the header of a CodeBlob (src/hotspot/share/code/codeBlob.hpp), and of an nmethod, which is a
// CodeBlob that holds a compiled method.
type blobSchema struct {
	name, size               field
	codeBegin, codeEnd       field // pointers, up to JDK 22
	codeOffset, dataOffset   field // from JDK 23 on; the code ends where the data begin
	frameSize, frameComplete field
	blobHeader               uint64 // bytes that hold all of these
	kind                     field  // from JDK 25 on: one byte
	adapterKind              uint64 // what kind is in adapters; 0 if unknown

	method, compileID, level field // of nmethod
	state, origPC            field
	entry, verified          field // pointers up to JDK 22, then offsets of 16 bits from the code
	entryBCI                 field
	deopt, deoptMH           field  // offsets from the blob if they have 32 bits, else pointers
	header                   uint64 // bytes that hold all of these
}

func newBlobSchema(r *resolver) blobSchema {
	s := blobSchema{
		name:          r.field("CodeBlob._name"),
		size:          r.field("CodeBlob._size"),
		codeBegin:     r.optional("CodeBlob._code_begin"),
		codeEnd:       r.optional("CodeBlob._code_end"),
		codeOffset:    r.optional("CodeBlob._code_offset"),
		dataOffset:    r.field("CodeBlob._data_offset"),
		frameSize:     r.field("CodeBlob._frame_size"),
		frameComplete: r.field("CodeBlob._frame_complete_offset"),
		kind:          r.optional("CodeBlob._kind"),
		adapterKind:   uint64(r.constant("CodeBlobKind::Adapter")),
		method:        r.field("nmethod._method", "CompiledMethod._method"),
		compileID:     r.field("nmethod._compile_id"),
		level:         r.field("nmethod._comp_level"),
		state:         r.field("nmethod._state"),
		origPC:        r.field("nmethod._orig_pc_offset"),
		entry:         r.optional("nmethod._entry_point", "nmethod._entry_offset"),
		verified:      r.optional("nmethod._verified_entry_point", "nmethod._verified_entry_offset"),
		entryBCI:      r.optional("nmethod._entry_bci"),
		deopt: r.field("nmethod._deopt_handler_begin", "CompiledMethod._deopt_handler_begin",
			"nmethod._deopt_handler_offset", "nmethod._deopt_handler_entry_offset", "nmethod._deoptimize_offset"),
		deoptMH: r.optional("nmethod._deopt_mh_handler_begin", "CompiledMethod._deopt_mh_handler_begin",
			"nmethod._deopt_mh_handler_offset", "nmethod._deoptimize_mh_offset"),
	}
	if !s.codeOffset.known && !(s.codeBegin.known && s.codeEnd.known) {
		r.missing = append(r.missing, "CodeBlob._code_begin and _code_end or _code_offset")
	}
	s.kind.width = 1 // an enum, of which the table does not know the width
	s.blobHeader = lastEnd(s.name, s.size, s.codeBegin, s.codeEnd, s.codeOffset, s.dataOffset, s.frameSize, s.frameComplete)
	s.header = max(s.blobHeader, lastEnd(s.method, s.compileID, s.level, s.state, s.origPC, s.deopt, s.deoptMH,
		s.entry, s.verified, s.entryBCI))
	if s.header > maxSize {
		r.missing = append(r.missing, "plausible offsets in nmethod")
	}
	return s
}

// A blob is the decoded header of a CodeBlob. The second group has meaning for nmethods only.
type blob struct {
	addr          uint64
	name          uint64 // address of its name: the same for all blobs of a kind
	begin, end    uint64 // its code
	size          uint32 // bytes, header and data included
	frameSize     int32  // words
	frameComplete int32  // bytes from begin: the frame is set up from there on; negative if there is none

	method    uint64
	compileID uint32
	level     int8
	state     int8
	entry     uint64 // 0 if unknown, as the next one
	verified  uint64
	entryBCI  int32 // negative unless the code is entered in the middle of a loop
}

// decodeBlob decodes the header of the blob at addr. ErrMalformed if it contradicts itself.
func (s *blobSchema) decodeBlob(addr uint64, header []byte) (blob, error) {
	b := blob{
		addr:          addr,
		name:          s.name.of(header),
		size:          uint32(s.size.of(header)),
		frameSize:     int32(s.frameSize.signedOf(header)),
		frameComplete: int32(s.frameComplete.signedOf(header)),
		method:        s.method.of(header),
		compileID:     uint32(s.compileID.of(header)),
		level:         int8(s.level.of(header)),
		state:         int8(s.state.of(header)),
		entry:         s.entry.of(header),
		verified:      s.verified.of(header),
		entryBCI:      int32(s.entryBCI.of(header)),
	}
	if s.codeOffset.known {
		b.begin = addr + s.codeOffset.of(header)
		b.end = addr + s.dataOffset.of(header)
	} else {
		b.begin, b.end = s.codeBegin.of(header), s.codeEnd.of(header)
	}
	if s.verified.known && s.verified.width < wordSize {
		b.entry, b.verified = b.begin+b.entry, b.begin+b.verified
	}
	if b.begin < addr || b.end < b.begin || b.end-addr > uint64(b.size) {
		return blob{}, fmt.Errorf("code blob at %#x: %w", addr, vmruntime.ErrMalformed)
	}
	return b, nil
}

// isAdapter reports whether the blob at addr says that it is an adapter, whatever its name is: that of one that comes from
// an AOT cache (JDK 26) is the signature that it is for.
func (s *blobSchema) isAdapter(t target, addr uint64) bool {
	if !s.kind.known || s.adapterKind == 0 {
		return false
	}
	b, err := t.bytes(s.kind.at(addr), 1)
	return err == nil && number(b) == s.adapterKind
}

// version is the part of the compile id that a vmruntime.Site carries.
func (b *blob) version() uint32 { return b.compileID & versionMask }

// same reports whether b and other are the same code. One that is not entered any more still is.
func (b blob) same(other blob) bool {
	b.state = other.state
	return b == other
}

// versionMask keeps the low 28 bits of a compile id.
const versionMask = 1<<28 - 1

// tier says what compiled an nmethod. Level 0 are wrappers of native methods.
func (b *blob) tier() vmruntime.Tier {
	switch b.level {
	case 0:
		return vmruntime.TierNative
	case 1, 2, 3:
		return vmruntime.TierC1
	case 4:
		return vmruntime.TierC2
	}
	return vmruntime.TierUnknown
}
