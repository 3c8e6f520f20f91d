package probesite

import (
	"encoding/binary"
	"errors"
)

var (
	errTruncated = errors.New("instruction is cut short")
	errInvalid   = errors.New("not an instruction of 64-bit mode")
	// errAmbiguous: processors disagree. A branch with an operand size prefix has 16 bits of distance on AMD, 32 on Intel.
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
