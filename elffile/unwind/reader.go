package unwind

import "encoding/binary"

// A reader reads numbers. Once it has passed the end, bad is set, and what it returns means nothing.
type reader struct {
	data []byte
	pos  int
	base uint64 // address of data
	bad  bool
}

// bytes returns the next n bytes, nil if there are fewer.
func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.data)-r.pos) {
		r.bad = true
		return nil
	}
	b := r.data[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b
}

func (r *reader) skip(n uint64) { r.bytes(n) }

// more reports whether something is left.
func (r *reader) more() bool { return !r.bad && r.pos < len(r.data) }

// uint reads a number of 1, 2, 4 or 8 bytes.
func (r *reader) uint(size uint64) uint64 {
	b := r.bytes(size)
	if b == nil {
		return 0
	}
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// signed is uint for a signed number.
func (r *reader) signed(size uint64) uint64 {
	shift := 64 - 8*size
	return uint64(int64(r.uint(size)<<shift) >> shift)
}

// leb reads a LEB128 number, and returns how many bits it has. Bits above 64 are dropped.
func (r *reader) leb() (v uint64, bits uint, last byte) {
	for {
		last = byte(r.uint(1))
		if bits < 64 {
			v |= uint64(last&0x7f) << bits
		}
		bits += 7
		if last&0x80 == 0 {
			return v, bits, last
		}
	}
}

func (r *reader) uleb() uint64 {
	v, _, _ := r.leb()
	return v
}

func (r *reader) sleb() int64 {
	v, bits, last := r.leb()
	if last&0x40 != 0 && bits < 64 {
		v |= ^uint64(0) << bits
	}
	return int64(v)
}

// Encodings of pointers: the low four bits are the format, the next three what is added.
const (
	encodedOmitted  = 0xff
	encodedIndirect = 0x80
	relativeMask    = 0x70
	relativeToPlace = 0x10
)

// pointer reads an address.
func (r *reader) pointer(encoding byte) (uint64, error) {
	if encoding == encodedOmitted || encoding&encodedIndirect != 0 {
		return 0, errUnsupported
	}
	place := r.base + uint64(r.pos)
	var v uint64
	switch encoding & 0x0f {
	case 0x00, 0x04, 0x0c:
		v = r.uint(8)
	case 0x01:
		v = r.uleb()
	case 0x02:
		v = r.uint(2)
	case 0x03:
		v = r.uint(4)
	case 0x09:
		v = uint64(r.sleb())
	case 0x0a:
		v = r.signed(2)
	case 0x0b:
		v = r.signed(4)
	default:
		return 0, errUnsupported
	}
	switch encoding & relativeMask {
	case 0:
	case relativeToPlace:
		v += place
	default:
		return 0, errUnsupported
	}
	if r.bad {
		return 0, errMalformed
	}
	return v, nil
}
