package page

import (
	"bytes"
	"io"
)

// isNop tells whether a probe is where its note should be: at a NOP, which the kernel emulates. It would execute other
// instructions step by step.
func isNop(f io.ReaderAt, offset uint64) bool {
	var b [4]byte
	if _, err := f.ReadAt(b[:], int64(offset)); err != nil {
		return false
	}
	return bytes.Equal(b[:], []byte{0x1f, 0x20, 0x03, 0xd5})
}
