package probesite

import (
	"encoding/binary"
	"errors"
)

// An encoding is the encoding of one instruction: enough to know its length, and where a branch
// goes.
type encoding struct {
	length    int // bytes
	prefixes  prefixes
	rex       byte // 0 if there is none
	extended  bool // VEX or EVEX
	scaled    bool // EVEX: a displacement of 8 bits counts up to 64 bytes
	opcodeMap opcodeMap
	opcode    byte
	modRM     byte
	memory    place // its operand in memory, if it has one
	immediate int64 // sign-extended; for a branch, the distance
}

// A place is the address of an operand in memory, if it is relative to the stack or frame pointer.
type place struct {
	base         base
	displacement int64 // bytes
}

type base uint8

const (
	otherBase base = iota // another register, none, or no operand in memory
	stackPointer
	framePointer
)

// reg is the middle field of the ModRM byte, without its extension by REX.
func (e *encoding) reg() byte { return e.modRM >> 3 & 7 }

// parse reads the instruction that code begins with. It knows all instructions of 64-bit mode up to
// AVX-512, except those that no relevant compiler emits: XOP, 3DNow! beyond its length, SSE4a's
// with two immediates, and APX.
func parse(code []byte) (encoding, error) {
	var e encoding
	r := reader{code: code}
	opcode, err := e.readPrefixes(&r)
	if err != nil {
		return encoding{}, err
	}
	if err := e.readOpcode(&r, opcode); err != nil {
		return encoding{}, err
	}
	layout := layoutOf(e.opcodeMap, e.extended, e.opcode)
	switch layout {
	case 'm', 'M', 'Z', 'g', 'G', 'r':
		if err := e.readModRM(&r, layout == 'r'); err != nil {
			return encoding{}, err
		}
	case 'x', 'p':
		return encoding{}, errInvalid
	}
	if err := e.readImmediate(&r, layout); err != nil {
		return encoding{}, err
	}
	e.length = r.at
	return e, nil
}

// readOpcode reads the escape to the opcode's map, if there is one, and the opcode itself.
func (e *encoding) readOpcode(r *reader, first byte) (err error) {
	switch first {
	case 0xc4, 0xc5, 0x62:
		return e.readExtended(r, first)
	case 0x0f:
		e.opcodeMap = map0F
		if e.opcode, err = r.byte(); err != nil {
			return err
		}
		switch e.opcode {
		case 0x38:
			e.opcodeMap = map0F38
		case 0x3a:
			e.opcodeMap = map0F3A
		default:
			return nil
		}
		e.opcode, err = r.byte()
		return err
	}
	e.opcode = first
	return nil
}

// prefixes is a set of legacy prefixes.
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

// prefixOf returns which prefix a byte is, 0 if it is none.
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
			return 0, errInvalid // REX before another prefix is ignored: no compiler writes that
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

// readExtended reads a VEX prefix of two or three bytes or an EVEX prefix of four (Intel SDM vol.
// 2, sections 2.3.5 and 2.7.1), and the opcode. They take the place of REX and of 66, f2 and f3.
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

// readModRM reads the ModRM byte, a SIB byte and the displacement (Intel SDM vol. 2, table 2-2).
func (e *encoding) readModRM(r *reader, registers bool) (err error) {
	if e.modRM, err = r.byte(); err != nil {
		return err
	}
	mod, rm := e.modRM>>6, e.modRM&7
	if e.opcodeMap == mapOneByte && !e.extended && !e.inGroup() {
		return errInvalid
	}
	if registers || mod == 3 {
		return nil
	}
	base := rm
	if rm == 4 {
		sib, err := r.byte()
		if err != nil {
			return err
		}
		base = sib & 7
	}
	switch {
	case mod == 1:
		e.memory.displacement, err = r.number(1)
	case mod == 2, base == 5: // with mod 0, 5 is no base but a displacement, from rip if there is no SIB byte
		e.memory.displacement, err = r.number(4)
	}
	switch {
	case e.rex&1 != 0: // r8 to r15
	case base == 4:
		e.memory.base = stackPointer
	case base == 5 && mod != 0:
		e.memory.base = framePointer
	}
	return err
}

// inGroup reports whether the reg field chooses one of the instructions that share the opcode
// (Intel SDM vol. 2, table A-6).
func (e *encoding) inGroup() bool {
	switch e.opcode {
	case 0x8f: // others are XOP
		return e.reg() == 0
	case 0xc6, 0xc7:
		return e.reg() == 0 || e.modRM == 0xf8 // xabort, xbegin
	case 0xfe:
		return e.reg() <= 1
	case 0xff:
		return e.reg() <= 6
	}
	return true
}

// readImmediate reads the immediate that the letter describes.
func (e *encoding) readImmediate(r *reader, layout byte) (err error) {
	z := 4 // bytes of z
	if e.prefixes&prefixOperandSize != 0 && e.rex&8 == 0 {
		z = 2
	}
	switch layout {
	case 'g', 'G':
		if e.reg() > 1 {
			return nil
		}
		layout = map[byte]byte{'g': 'b', 'G': 'z'}[layout]
	}
	size := 0
	switch layout {
	case 'b', 'M':
		size = 1
	case 'w':
		size = 2
	case 'z', 'Z':
		size = z
	case 'e':
		_, err = r.next(3)
	case 'v':
		if size = z; e.rex&8 != 0 {
			size = 8
		}
	case 'o':
		if size = 8; e.prefixes&prefixAddressSize != 0 {
			size = 4
		}
	case 'j':
		if z == 2 {
			return errAmbiguous
		}
		size = 4
	}
	if size > 0 {
		e.immediate, err = r.number(size)
	}
	return err
}

var (
	errTruncated = errors.New("instruction is cut short")
	errInvalid   = errors.New("not an instruction of 64-bit mode")
	// errAmbiguous: processors disagree. A branch with an operand size prefix has 16 bits of
	// distance on AMD, 32 on Intel.
	errAmbiguous = errors.New("instruction has different lengths on different processors")
)

// reader takes an instruction's bytes one after the other.
type reader struct {
	code []byte
	at   int
}

func (r *reader) next(n int) ([]byte, error) {
	if r.at+n > maxInstruction {
		return nil, errInvalid
	}
	if r.at+n > len(r.code) {
		return nil, errTruncated
	}
	r.at += n
	return r.code[r.at-n : r.at], nil
}

func (r *reader) byte() (byte, error) {
	b, err := r.next(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// number reads n bytes, n one of 1, 2, 4, 8, and extends their sign.
func (r *reader) number(n int) (int64, error) {
	b, err := r.next(n)
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return int64(int8(b[0])), nil
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b))), nil
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}
