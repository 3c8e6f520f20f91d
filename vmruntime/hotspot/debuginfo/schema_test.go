package debuginfo

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// TestScopeSpans: the three places where debug information has been. Every field is 8 bytes wide
// here.
func TestScopeSpans(t *testing.T) {
	next := uint32(0)
	at := func() vmstructs.Field { next += 8; return vmstructs.Field{Offset: next - 8, Width: 8, Known: true} }
	const blob, block, other = 0x10000, 0x20000, 0x30000
	for name, test := range map[string]struct {
		schema                Schema
		values                []uint64
		pcs, scopes, metadata span
	}{
		"JDK 8": {
			Schema{metadata: at(), scopesOffset: at(), pcs: at(), dependencies: at()},
			[]uint64{0x100, 0x180, 0x200, 0x300},
			span{blob + 0x200, blob + 0x300}, span{blob + 0x180, blob + 0x200}, span{blob + 0x100, blob + 0x180},
		},
		"JDK 9-22": {
			Schema{metadata: at(), scopesBegin: at(), pcs: at(), dependencies: at()},
			[]uint64{0x100, blob + 0x180, 0x200, 0x300},
			span{blob + 0x200, blob + 0x300}, span{blob + 0x180, blob + 0x200}, span{blob + 0x100, blob + 0x180},
		},
		"JDK 23": {
			Schema{Immutable: at(), immutableSize: at(), pcs: at(), scopesOffset: at(), dataOffset: at(),
				metadata: at(), size: at()},
			[]uint64{block, 0x80, 0x10, 0x40, 0x400, 0x20, 0x500},
			span{block + 0x10, block + 0x40}, span{block + 0x40, block + 0x80}, span{blob + 0x420, blob + 0x500},
		},
		"JDK 25": {
			Schema{Immutable: at(), immutableSize: at(), pcs: at(), scopesOffset: at(), mutable: at(), relocate: at(),
				mutableSize: at()},
			[]uint64{block, 0x80, 0x10, 0x40, other, 0x18, 0x50},
			span{block + 0x10, block + 0x40}, span{block + 0x40, block + 0x80}, span{other + 0x18, other + 0x50},
		},
	} {
		s := test.schema
		s.pcDescSize, s.pcDescScope = pcDescSize, pcDescScope
		if !s.Known() {
			t.Errorf("%s: not known", name)
		}
		header := make([]byte, s.Header())
		start := len(header) - 8*len(test.values)
		for i, v := range test.values {
			binary.LittleEndian.PutUint64(header[start+8*i:], v)
		}
		pcs, scopes, metadata := s.spans(blob, header)
		if pcs != test.pcs || scopes != test.scopes || metadata != test.metadata {
			t.Errorf("%s: %x, %x, %x; want %x, %x, %x", name, pcs, scopes, metadata, test.pcs, test.scopes,
				test.metadata)
		}
		s.pcDescSize = 24
		if s.Known() {
			t.Errorf("%s: known with another layout of positions", name)
		}
	}
	if (&Schema{pcDescSize: pcDescSize, pcDescScope: pcDescScope}).Known() {
		t.Error("known without anything")
	}
}

func TestReadScopesRefuses(t *testing.T) {
	s := &Schema{
		metadata:     vmstructs.Field{Offset: 0, Width: 8, Known: true},
		scopesOffset: vmstructs.Field{Offset: 8, Width: 8, Known: true},
		pcs:          vmstructs.Field{Offset: 16, Width: 8, Known: true},
		dependencies: vmstructs.Field{Offset: 24, Width: 8, Known: true},
	}
	for name, values := range map[string][4]uint64{
		"turned around": {0x100, 0x180, 0x300, 0x200},
		"too large":     {0x100, 0x180, 0x200, 0x200 + maxScopeBytes + 1},
	} {
		var header []byte
		for _, v := range values {
			header = binary.LittleEndian.AppendUint64(header, v)
		}
		memory := &vmtest.Memory{Pieces: []vmtest.Piece{{Addr: 0x10000, Data: make([]byte, 4<<20)}}}
		if raw, err := Read(vmstructs.Reader{Mem: memory}, s, 0x10000, header); !errors.Is(err,
			vmruntime.ErrMalformed) {
			t.Errorf("%s: %d bytes, %v", name, len(raw.PCs), err)
		}
	}
}
