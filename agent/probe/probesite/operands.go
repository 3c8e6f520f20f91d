package probesite

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// operands decodes an instruction with its operands. It returns false if x86asm does not know it,
// or has its length wrong: x86asm takes the prefixes of unknown instructions for instructions of
// their own. VEX and EVEX are left out, as x86asm knows only some of them, and some wrongly.
func operands(code []byte) (x86asm.Inst, bool) {
	i, err := Decode(code)
	if err != nil || i.encoding.extended {
		return x86asm.Inst{}, false
	}
	known, err := x86asm.Decode(code[:i.Len], 64)
	return known, err == nil && known.Op != 0 && known.Len == i.Len
}

// registers is a set of general-purpose registers: 1 << elffile.RAX and so on.
type registers uint32

func set(regs ...elffile.Reg) (s registers) {
	for _, r := range regs {
		s |= 1 << r
	}
	return s
}

// argumentOrder are the registers of the first six integer arguments of a function (System V ABI
// for AMD64, section 3.2.3).
var argumentOrder = [...]elffile.Reg{elffile.RDI, elffile.RSI, elffile.RDX, elffile.RCX, elffile.R8, elffile.R9}

// An effect is what an instruction may change.
type effect struct {
	writes registers // general-purpose registers, whole or in part
	memory bool      // it stores
	leaves bool      // the next executed instruction may be another than the following one
}

// resultRegister holds what a function returns (ABI, section 3.2.3).
var resultRegister = set(elffile.RAX)

// anything is the effect of an unknown instruction.
var anything = effect{writes: ^registers(0), memory: true, leaves: true}

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// effectOf returns the effect of the instruction that code begins with. It covers what compilers
// put at the beginning of functions and after calls: moves, arithmetic, comparisons. All others may
// do anything.
func effectOf(code []byte) effect {
	if bytes.HasPrefix(code, endbr64) {
		return effect{}
	}
	i, ok := operands(code)
	if !ok {
		return anything
	}
	switch i.Op {
	case x86asm.NOP, x86asm.CMP, x86asm.TEST, x86asm.UCOMISS, x86asm.UCOMISD, x86asm.COMISS, x86asm.COMISD:
		return effect{}
	case x86asm.CWD, x86asm.CDQ, x86asm.CQO:
		return effect{writes: set(elffile.RDX)}
	case x86asm.CBW, x86asm.CWDE, x86asm.CDQE:
		return effect{writes: set(elffile.RAX)}
	case x86asm.IMUL:
		if i.Args[1] == nil {
			return effect{writes: set(elffile.RAX, elffile.RDX)}
		}
		return firstOperand(i.Args[0])
	case x86asm.CMPXCHG:
		e := firstOperand(i.Args[0])
		e.writes |= set(elffile.RAX)
		return e
	case x86asm.POP:
		e := firstOperand(i.Args[0])
		e.writes |= set(elffile.RSP)
		return e
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA,
		x86asm.ADD, x86asm.SUB, x86asm.ADC, x86asm.SBB, x86asm.AND, x86asm.OR, x86asm.XOR, x86asm.INC, x86asm.DEC,
		x86asm.NEG, x86asm.NOT, x86asm.SHL, x86asm.SHR, x86asm.SAR, x86asm.ROL, x86asm.ROR,
		x86asm.MOVAPS, x86asm.MOVUPS, x86asm.MOVAPD, x86asm.MOVUPD, x86asm.MOVDQA, x86asm.MOVDQU, x86asm.MOVSS,
		x86asm.MOVSD_XMM, x86asm.MOVD, x86asm.MOVQ, x86asm.PXOR, x86asm.XORPS, x86asm.XORPD:
		return firstOperand(i.Args[0])
	}
	if name := i.Op.String(); strings.HasPrefix(name, "SET") || strings.HasPrefix(name, "CMOV") {
		return firstOperand(i.Args[0])
	}
	return anything
}

// firstOperand is the effect of an instruction that writes only to its first operand.
func firstOperand(a x86asm.Arg) effect {
	switch a := a.(type) {
	case x86asm.Mem:
		return effect{memory: true}
	case x86asm.Reg:
		if r, ok := registerOf(a); ok {
			return effect{writes: set(r)}
		}
		if a >= x86asm.X0 && a <= x86asm.X15 || a >= x86asm.M0 && a <= x86asm.M7 {
			return effect{}
		}
	}
	return anything
}

// whole has x86asm's 64-bit registers in the order of its constants.
var whole = [...]elffile.Reg{
	elffile.RAX, elffile.RCX, elffile.RDX, elffile.RBX, elffile.RSP, elffile.RBP, elffile.RSI, elffile.RDI,
	elffile.R8, elffile.R9, elffile.R10, elffile.R11, elffile.R12, elffile.R13, elffile.R14, elffile.R15,
}

// registerOf returns the whole register that r is or is a part of.
func registerOf(r x86asm.Reg) (elffile.Reg, bool) {
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return whole[r-x86asm.RAX], true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return whole[r-x86asm.EAX], true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return whole[r-x86asm.AX], true
	case r >= x86asm.AL && r <= x86asm.BL: // AL, CL, DL, BL
		return whole[r-x86asm.AL], true
	case r >= x86asm.AH && r <= x86asm.BH: // AH, CH, DH, BH
		return whole[r-x86asm.AH], true
	case r >= x86asm.SPB && r <= x86asm.R15B: // SPB, BPB, SIB, DIB, R8B ...
		return whole[4+r-x86asm.SPB], true
	}
	return elffile.NoReg, false
}

// text formats an instruction for people: "sub $0x18,%rsp", or its bytes if x86asm does not know
// it.
func text(code []byte) string {
	i, err := Decode(code)
	if err != nil {
		return "an unknown instruction"
	}
	known, ok := operands(code)
	if !ok {
		return fmt.Sprintf("instruction % x", code[:i.Len])
	}
	return x86asm.GNUSyntax(known, 0, nil)
}
