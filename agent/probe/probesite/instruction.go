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

// nop5 is the one NOP of five bytes that the kernel compares with (x86_nops[5] of
// arch/x86/kernel/alternative.c).
var nop5 = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}

// Decode decodes the instruction that code begins with. It fails if code is cut short, if it is not
// an instruction of 64-bit mode, or if processors disagree on its length.
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

// Calls reports whether it calls, directly or through a register or memory.
func (i *Instruction) Calls() bool {
	const call, farCall = 2, 3 // in the reg field of ff
	e := &i.encoding
	return !e.extended && e.opcodeMap == mapOneByte && (e.opcode == 0xe8 || e.opcode == 0xff &&
		(e.modRM>>3&7 == call || e.modRM>>3&7 == farCall))
}

// Returns reports whether it is a near return.
func (i *Instruction) Returns() bool {
	e := &i.encoding
	return !e.extended && e.opcodeMap == mapOneByte && (e.opcode == 0xc3 || e.opcode == 0xc2)
}

// Branch returns the target of a branch at addr, if it has a distance: of jumps, calls, loop, jrcxz
// and xbegin.
func (i *Instruction) Branch(addr uint64) (uint64, bool) {
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

// A Kind is how a kernel executes an instruction with a uprobe (Linux arch/x86/kernel/uprobes.c).
// Times of a hit are those of kernel 6.18 with a program that does nothing, on a fast and on a slow
// machine; package hitcost measures them.
type Kind uint8

const (
	// Stepped: the kernel copies the instruction elsewhere, and executes it there with the trap
	// flag set: 2.5 to 10 us, sometimes 70. Old kernels refuse some of them.
	Stepped Kind = iota
	// Refused: the kernel allows no probe there. A prefix (lock, a segment) or the operation itself
	// is not allowed.
	Refused
	// Nop is 90, without prefixes: 0.17 to 0.5 us.
	Nop
	// Nop5 is 0f 1f 44 00 00: emulated from 6.16 on, and from 6.18 on replaced by a call into the
	// kernel: 0.10 to 0.35 us. Older kernels step it.
	Nop5
	// LongNop is every other NOP of several bytes. Kernels differ: 6.18 emulates those of 0f 1f
	// (0.17 us), older ones step these, and refuse 66 90.
	LongNop
	// Push is a push of a 64-bit register: emulated from 4.15 on, 0.17 to 0.54 us.
	Push
	// Jump is jmp with a distance: emulated from 3.16 on, as are the next two.
	Jump
	// CondJump is a jump on a flag (jcc) with a distance, taken or not. loop and jrcxz are not
	// included.
	CondJump
	// Call is call with a distance: 0.40 to 0.57 us, of the others 0.17 to 0.54.
	Call
)

var kindNames = [...]string{"single-stepped", "refused", "nop", "nop5", "long nop", "push", "jmp", "jcc", "call"}

// String is the kind for people.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "invalid"
}

// Emulated reports whether all kernels that the agent supports (6.1 and later) emulate the kind.
// Nop5 and LongNop are not included: see Finder.Emulates.
func (k Kind) Emulated() bool {
	switch k {
	case Nop, Push, Jump, CondJump, Call:
		return true
	}
	return false
}

// kind classifies an instruction.
func (e *encoding) kind() Kind {
	switch {
	case e.refused():
		return Refused
	case e.extended:
		return Stepped
	case e.opcodeMap == map0F:
		return e.kind0F()
	case e.opcodeMap != mapOneByte:
		return Stepped
	}
	op := e.opcode
	switch {
	case op == 0x90 && e.prefixes&prefixRep != 0, op == 0x90 && e.rex&1 != 0:
		return Stepped // pause and xchg %r8,%rax, which kernels before 6.18 treat as NOPs
	case op == 0x90 && e.length == 1:
		return Nop
	case op == 0x90:
		return LongNop
	case op >= 0x50 && op <= 0x57 && (e.length == 1 || e.length == 2 && e.rex == 0x41):
		return Push // the kernel steps it with another prefix
	case op == 0xe9, op == 0xeb:
		return Jump
	case op >= 0x70 && op <= 0x7f:
		return CondJump
	case op == 0xe8:
		return Call
	}
	return Stepped
}

func (e *encoding) kind0F() Kind {
	switch {
	case e.opcode == 0x1f && e.reg() == 0:
		return LongNop
	case e.opcode >= 0x80 && e.opcode <= 0x8f:
		return CondJump
	}
	return Stepped
}

// refused reports whether the kernel does not accept a probe: is_prefix_bad, and opcodes that its
// tables leave out. It looks up opcodes after VEX and EVEX in the table of one-byte opcodes, so
// that it refuses vmovdqu (6f) as if it were outs.
func (e *encoding) refused() bool {
	if e.prefixes&(prefixLock|prefixSegment) != 0 {
		return true
	}
	wide := e.prefixes&prefixOperandSize != 0
	op := e.opcode
	switch {
	case e.opcodeMap == map0F && !e.extended:
		return wide && op >= 0x80 && op <= 0x8f
	case e.opcodeMap != mapOneByte && !e.extended:
		return false
	case op >= 0x6c && op <= 0x6f, op >= 0xe4 && op <= 0xe7, op >= 0xec && op <= 0xef: // ports
		return true
	case op == 0xcc, op == 0xcd, op == 0xcf, op == 0xf1, op == 0xf4, op == 0xfa, op == 0xfb: // traps, halt, cli, sti
		return true
	}
	// Branches of 16 bits.
	return wide && !e.extended && (op == 0xe8 || op == 0xe9 || op == 0xeb || op >= 0x70 && op <= 0x7f)
}
