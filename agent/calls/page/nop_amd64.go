package page

import (
	"bytes"
	"io"
)

// isNop tells whether a probe is where its note should be: at a NOP, which the kernel emulates or replaces. It would
// execute other instructions step by step, at a hundred times the cost.
func isNop(f io.ReaderAt, offset uint64) bool {
	var b [5]byte
	if _, err := f.ReadAt(b[:], int64(offset)); err != nil {
		return false
	}
	return b[0] == 0x90 || bytes.Equal(b[:], []byte{0x0f, 0x1f, 0x44, 0x00, 0x00})
}
