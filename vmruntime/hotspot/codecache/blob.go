package codecache

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// BlobSchema decodes the header of a CodeBlob (src/hotspot/share/code/codeBlob.hpp), and of an
// nmethod, which is a CodeBlob that holds a compiled method.
type BlobSchema struct {
	Name, Size               vmstructs.Field
	CodeBegin, CodeEnd       vmstructs.Field // pointers, up to JDK 22
	CodeOffset, DataOffset   vmstructs.Field // from JDK 23 on; the code ends where the data begin
	FrameSize, FrameComplete vmstructs.Field
	BlobHeader               uint64          // bytes that hold all of these
	Kind                     vmstructs.Field // from JDK 25 on: one byte
	AdapterKind              uint64          // what kind is in adapters; 0 if unknown

	method, CompileID, level vmstructs.Field // fields of nmethod
	State, OrigPC            vmstructs.Field
	entry, verified          vmstructs.Field // pointers up to JDK 22, then offsets of 16 bits from the code
	EntryBCI                 vmstructs.Field
	Deopt, DeoptMH           vmstructs.Field // offsets from the blob if they have 32 bits, else pointers
	Header                   uint64          // bytes that hold all of these
}

// NewBlobSchema looks up the fields of CodeBlob and nmethod. What is missing is in r.Err.
func NewBlobSchema(r *vmstructs.Resolver) BlobSchema {
	s := BlobSchema{
		Name:          r.Field("CodeBlob._name"),
		Size:          r.Field("CodeBlob._size"),
		CodeBegin:     r.Optional("CodeBlob._code_begin"),
		CodeEnd:       r.Optional("CodeBlob._code_end"),
		CodeOffset:    r.Optional("CodeBlob._code_offset"),
		DataOffset:    r.Field("CodeBlob._data_offset"),
		FrameSize:     r.Field("CodeBlob._frame_size"),
		FrameComplete: r.Field("CodeBlob._frame_complete_offset"),
		Kind:          r.Optional("CodeBlob._kind"),
		AdapterKind:   uint64(r.Constant("CodeBlobKind::Adapter")),
		method:        r.Field("nmethod._method", "CompiledMethod._method"),
		CompileID:     r.Field("nmethod._compile_id"),
		level:         r.Field("nmethod._comp_level"),
		State:         r.Field("nmethod._state"),
		OrigPC:        r.Field("nmethod._orig_pc_offset"),
		entry:         r.Optional("nmethod._entry_point", "nmethod._entry_offset"),
		verified:      r.Optional("nmethod._verified_entry_point", "nmethod._verified_entry_offset"),
		EntryBCI:      r.Optional("nmethod._entry_bci"),
		Deopt: r.Field("nmethod._deopt_handler_begin", "CompiledMethod._deopt_handler_begin",
			"nmethod._deopt_handler_offset", "nmethod._deopt_handler_entry_offset", "nmethod._deoptimize_offset"),
		DeoptMH: r.Optional("nmethod._deopt_mh_handler_begin", "CompiledMethod._deopt_mh_handler_begin",
			"nmethod._deopt_mh_handler_offset", "nmethod._deoptimize_mh_offset"),
	}
	if !s.CodeOffset.Known && !(s.CodeBegin.Known && s.CodeEnd.Known) {
		r.Missing = append(r.Missing, "CodeBlob._code_begin and _code_end or _code_offset")
	}
	s.Kind.Width = 1 // an enum, of which the table does not know the width
	s.BlobHeader = vmstructs.LastEnd(s.Name, s.Size, s.CodeBegin, s.CodeEnd, s.CodeOffset, s.DataOffset, s.FrameSize,
		s.FrameComplete)
	s.Header = max(s.BlobHeader, vmstructs.LastEnd(s.method, s.CompileID, s.level, s.State, s.OrigPC, s.Deopt,
		s.DeoptMH,
		s.entry, s.verified, s.EntryBCI))
	if s.Header > vmstructs.MaxSize {
		r.Missing = append(r.Missing, "plausible offsets in nmethod")
	}
	return s
}

// A Blob is the decoded header of a CodeBlob. The second group has meaning for nmethods only.
type Blob struct {
	Addr          uint64
	Name          uint64 // address of its name: the same for all blobs of a kind
	Begin, End    uint64 // its code
	size          uint32 // bytes, header and data included
	FrameComplete int32  // bytes from begin: the frame is set up from there on; negative if there is none

	Method    uint64
	CompileID uint32
	Level     int8
	State     int8
	Entry     uint64 // 0 if unknown, as the next one
	Verified  uint64
	EntryBCI  int32 // negative unless the code is entered in the middle of a loop
}

// Decode decodes the header of the blob at addr. ErrMalformed if it contradicts itself.
func (s *BlobSchema) Decode(addr uint64, header []byte) (Blob, error) {
	b := Blob{
		Addr:          addr,
		Name:          s.Name.Read(header),
		size:          uint32(s.Size.Read(header)),
		FrameComplete: int32(s.FrameComplete.ReadSigned(header)),
		Method:        s.method.Read(header),
		CompileID:     uint32(s.CompileID.Read(header)),
		Level:         int8(s.level.Read(header)),
		State:         int8(s.State.Read(header)),
		Entry:         s.entry.Read(header),
		Verified:      s.verified.Read(header),
		EntryBCI:      int32(s.EntryBCI.Read(header)),
	}
	if s.CodeOffset.Known {
		b.Begin = addr + s.CodeOffset.Read(header)
		b.End = addr + s.DataOffset.Read(header)
	} else {
		b.Begin, b.End = s.CodeBegin.Read(header), s.CodeEnd.Read(header)
	}
	if s.verified.Known && s.verified.Width < vmstructs.WordSize {
		b.Entry, b.Verified = b.Begin+b.Entry, b.Begin+b.Verified
	}
	if b.Begin < addr || b.End < b.Begin || b.End-addr > uint64(b.size) {
		return Blob{}, fmt.Errorf("code blob at %#x: %w", addr, vmruntime.ErrMalformed)
	}
	return b, nil
}

// IsAdapter reports whether the blob at addr says that it is an adapter, whatever its name is: that
// of one that comes from an AOT cache (JDK 26) is the signature that it is for.
func (s *BlobSchema) IsAdapter(t vmstructs.Reader, addr uint64) bool {
	if !s.Kind.Known || s.AdapterKind == 0 {
		return false
	}
	b, err := t.Bytes(s.Kind.At(addr), 1)
	return err == nil && vmstructs.Number(b) == s.AdapterKind
}

// Version is the part of the compile id that a vmruntime.Site carries.
func (b *Blob) Version() uint32 { return b.CompileID & VersionMask }

// Same reports whether b and other are the same code. One that is not entered any more still is.
func (b Blob) Same(other Blob) bool {
	b.State = other.State
	return b == other
}

// VersionMask keeps the low 28 bits of a compile id.
const VersionMask = 1<<28 - 1

// Tier says what compiled an nmethod. Level 0 are wrappers of native methods.
func (b *Blob) Tier() vmruntime.Tier {
	switch b.Level {
	case 0:
		return vmruntime.TierNative
	case 1, 2, 3:
		return vmruntime.TierC1
	case 4:
		return vmruntime.TierC2
	}
	return vmruntime.TierUnknown
}
