package probesite

// An encoding is how one instruction is written: enough to know its length, and where a branch goes.
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
	immediate int64 // sign-extended; of a branch the distance
}

// A place is where an operand in memory is, as far as that counts from the stack or the frame pointer.
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

// parse reads the instruction that code begins with. It knows all instructions of 64-bit mode up to AVX-512; not those
// that no guest's compiler emits: XOP, 3DNow! beyond its length, SSE4a's with two immediates, and APX.
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

// readOpcode reads the way into the opcode's map, if there is one, and the opcode itself.
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
