package probesite

// prefixes is a set of those that may stand before an opcode.
type prefixes uint8

const (
	prefixOperandSize prefixes = 1 << iota // 66
	prefixAddressSize                      // 67
	prefixRepne                            // f2
	prefixRep                              // f3
	prefixLock                             // f0
	prefixSegment                          // 2e, 36, 3e, 26: without effect but on branches
	prefixThread                           // 64, 65: fs and gs
)

// prefixOf returns what a byte is as a prefix, 0 if it is none.
func prefixOf(b byte) prefixes {
	switch b {
	case 0x66:
		return prefixOperandSize
	case 0x67:
		return prefixAddressSize
	case 0xf2:
		return prefixRepne
	case 0xf3:
		return prefixRep
	case 0xf0:
		return prefixLock
	case 0x26, 0x2e, 0x36, 0x3e:
		return prefixSegment
	case 0x64, 0x65:
		return prefixThread
	}
	return 0
}

// readPrefixes reads up to the first byte of the opcode.
func (e *encoding) readPrefixes(r *reader) (opcode byte, err error) {
	for {
		b, err := r.byte()
		if err != nil {
			return 0, err
		}
		p := prefixOf(b)
		switch {
		case p != 0 && e.rex != 0:
			return 0, errInvalid // REX before another prefix is void: nobody writes that
		case p != 0:
			e.prefixes |= p
		case b&0xf0 == 0x40 && e.rex != 0:
			return 0, errInvalid
		case b&0xf0 == 0x40:
			e.rex = b
		default:
			return b, nil
		}
	}
}

// readExtended reads a VEX prefix of two or three bytes or an EVEX prefix of four (Intel SDM vol. 2, sections 2.3.5 and
// 2.7.1), and the opcode. They take the place of REX and of 66, f2 and f3.
func (e *encoding) readExtended(r *reader, first byte) error {
	if e.rex != 0 || e.prefixes&(prefixOperandSize|prefixRep|prefixRepne|prefixLock) != 0 {
		return errInvalid
	}
	e.extended = true
	n := map[byte]int{0xc5: 1, 0xc4: 2, 0x62: 3}[first]
	payload, err := r.next(n)
	if err != nil {
		return err
	}
	if first != 0xc5 && payload[0]&0x20 == 0 {
		e.rex |= 1 // they have the bits of REX inverted
	}
	switch first {
	case 0xc5:
		e.opcodeMap = map0F
	case 0xc4:
		e.opcodeMap = opcodeMap(payload[0] & 0x1f)
		if e.opcodeMap > map0F3A {
			return errInvalid
		}
	case 0x62:
		// Bit 3 of the first byte and the complement of bit 2 of the second are APX's.
		if payload[0]&0x08 != 0 || payload[1]&0x04 == 0 {
			return errInvalid
		}
		e.opcodeMap, e.scaled = opcodeMap(payload[0]&0x07), true
	}
	e.opcode, err = r.byte()
	return err
}
