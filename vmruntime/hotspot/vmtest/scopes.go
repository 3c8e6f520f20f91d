package vmtest

import "encoding/binary"

// A ScopeWriter writes debug information as a compiler does: callers first.
type ScopeWriter struct {
	PCs, Scopes, Metadata []byte
	bias                  uint32
}

// NewScopeWriter begins debug information with these addresses of methods.
func NewScopeWriter(bias uint32, methods ...uint64) *ScopeWriter {
	w := &ScopeWriter{bias: bias}
	w.Scopes = []byte{0xff} // offset 0 means none
	for _, m := range methods {
		w.Metadata = binary.LittleEndian.AppendUint64(w.Metadata, m)
	}
	return w
}

// Scope adds a scope in method slot (from 1) and returns its offset.
func (w *ScopeWriter) Scope(sender, slot uint32, bci int) uint32 {
	offset := uint32(len(w.Scopes))
	for _, n := range []uint32{sender, slot, uint32(bci + 1)} {
		w.Scopes = append(w.Scopes, Unsigned5(n, w.bias)...)
	}
	return offset
}

// Position adds a code position.
func (w *ScopeWriter) Position(offset int32, scope uint32) {
	for _, n := range []uint32{uint32(offset), scope, 0, 0} {
		w.PCs = binary.LittleEndian.AppendUint32(w.PCs, n)
	}
}
