package probesite

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

// inGroup reports whether the reg field chooses one of the instructions that share the opcode (Intel SDM vol. 2, table A-6).
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

// readImmediate reads what the letter says.
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
