package hotspot

import "encoding/binary"

// A scopeWriter writes debug information as a compiler does: callers first.
type scopeWriter struct {
	pcs, scopes, metadata []byte
	bias                  uint32
}

// newScopeWriter begins debug information with these addresses of methods.
func newScopeWriter(bias uint32, methods ...uint64) *scopeWriter {
	w := &scopeWriter{bias: bias}
	w.scopes = []byte{0xff} // offset 0 means none
	for _, m := range methods {
		w.metadata = binary.LittleEndian.AppendUint64(w.metadata, m)
	}
	return w
}

// scope adds a scope in method slot (from 1) and returns its offset.
func (w *scopeWriter) scope(sender, slot uint32, bci int) uint32 {
	offset := uint32(len(w.scopes))
	for _, n := range []uint32{sender, slot, uint32(bci + 1)} {
		w.scopes = append(w.scopes, encode5(n, w.bias)...)
	}
	return offset
}

// position adds a code position.
func (w *scopeWriter) position(offset int32, scope uint32) {
	for _, n := range []uint32{uint32(offset), scope, 0, 0} {
		w.pcs = binary.LittleEndian.AppendUint32(w.pcs, n)
	}
}
