package cct

import (
	"testing"
	"unsafe"
)

// DefaultLimit and the documented memory of the agent depend on these sizes.
func TestNodeSize(t *testing.T) {
	if got := unsafe.Sizeof(node[uint64]{}); got > 40 {
		t.Errorf("a node with a key of one word takes %d bytes, want 40", got)
	}
	if got := unsafe.Sizeof(node[[2]uint64]{}); got > 48 {
		t.Errorf("a node with a key of two words takes %d bytes, want 48", got)
	}
}
