package hotspot

// A shape is the size of a class's objects: a Klass's layout helper in the clear (src/hotspot/share/oops/klass.hpp).
type shape struct {
	size   uint64 // of all of them, in bytes; of arrays 0
	array  bool
	header uint64 // array: bytes before the first element
	shift  uint8  // array: log2 of the bytes of an element
}

// Layout of a layout helper: of an instance the size in bytes, with a bit that says that allocating it is slow; of an
// array a negative number with these parts.
const (
	helperSlowBits    = wordSize - 1
	helperHeaderShift = 16
	helperHeaderMask  = 0xff
	helperShiftMask   = 0x3f
	maxElementShift   = 3 // long, double, references
)

// newShape decodes a layout helper; ok is false if there is no such object.
func newShape(helper int32) (s shape, ok bool) {
	const smallest = 8 // bytes of an object: with compact headers
	if helper > 0 {
		s.size = uint64(helper) &^ helperSlowBits
		return s, s.size >= smallest
	}
	s = shape{
		array:  true,
		header: uint64(helper>>helperHeaderShift) & helperHeaderMask,
		shift:  uint8(helper & helperShiftMask),
	}
	return s, helper != 0 && s.header > smallest && s.shift <= maxElementShift
}

// bytes is the size of an object; length is that of an array.
func (s shape) bytes(length, alignment uint32) uint64 {
	n := s.size
	if s.array {
		n = s.header + uint64(length)<<s.shift
	}
	return (n + uint64(alignment) - 1) &^ uint64(alignment-1)
}
