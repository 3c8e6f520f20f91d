package probesite

import (
	"bytes"
	"fmt"
)

// An Instruction is one instruction of x86-64 code.
type Instruction struct {
	Len  int // bytes, 1 to 15
	Kind Kind

	encoding encoding
}

// nop5 is the one NOP of five bytes that the kernel compares with (x86_nops[5] of arch/x86/kernel/alternative.c).
var nop5 = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}

// Decode decodes the instruction that code begins with. It fails where code is cut short, where it is no instruction of
// 64-bit mode, and where processors disagree on its length.
func Decode(code []byte) (Instruction, error) {
	e, err := parse(code)
	if err != nil {
		return Instruction{}, fmt.Errorf("decode % x: %w", code[:min(len(code), maxInstruction)], err)
	}
	i := Instruction{Len: e.length, Kind: e.kind(), encoding: e}
	if bytes.HasPrefix(code, nop5) {
		i.Kind = Nop5
	}
	return i, nil
}

// target returns where a branch with a distance goes that stands at addr.
func (i *Instruction) target(addr uint64) (uint64, bool) {
	switch e := &i.encoding; {
	case e.extended:
		return 0, false
	case e.opcodeMap == mapOneByte && (e.opcode == 0xe8 || e.opcode == 0xe9 || e.opcode == 0xeb):
	case e.opcodeMap == mapOneByte && (e.opcode >= 0x70 && e.opcode <= 0x7f || e.opcode >= 0xe0 && e.opcode <= 0xe3):
	case e.opcodeMap == map0F && e.opcode >= 0x80 && e.opcode <= 0x8f:
	case e.opcodeMap == mapOneByte && e.opcode == 0xc7 && e.modRM == 0xf8: // xbegin, to where it aborts
	default:
		return 0, false
	}
	return addr + uint64(i.Len) + uint64(i.encoding.immediate), true
}
