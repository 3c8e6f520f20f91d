package javaheap

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Shape is the size of a class's objects: a Klass's layout helper in the clear
// (src/hotspot/share/oops/klass.hpp).
type Shape struct {
	Size   uint64 // bytes of each object; 0 for arrays
	Array  bool
	Header uint64 // array: bytes before the first element
	Shift  uint8  // array: log2 of the bytes of an element
}

// Layout of a layout helper: of an instance the size in bytes, with a bit that says that allocating
// it is slow; of an array a negative number with these parts.
const (
	helperSlowBits    = vmstructs.WordSize - 1
	helperHeaderShift = 16
	helperHeaderMask  = 0xff
	helperShiftMask   = 0x3f
	maxElementShift   = 3 // long, double, references
)

// NewShape decodes a layout helper; ok is false if there is no such object.
func NewShape(helper int32) (s Shape, ok bool) {
	const smallest = 8 // bytes of an object: with compact headers
	if helper > 0 {
		s.Size = uint64(helper) &^ helperSlowBits
		return s, s.Size >= smallest
	}
	s = Shape{
		Array:  true,
		Header: uint64(helper>>helperHeaderShift) & helperHeaderMask,
		Shift:  uint8(helper & helperShiftMask),
	}
	return s, helper != 0 && s.Header > smallest && s.Shift <= maxElementShift
}

// Bytes is the size of an object; length is that of an array.
func (s Shape) Bytes(length, alignment uint32) uint64 {
	n := s.Size
	if s.Array {
		n = s.Header + uint64(length)<<s.Shift
	}
	return (n + uint64(alignment) - 1) &^ uint64(alignment-1)
}
