package elffile

import (
	"debug/elf"
	"strings"
)

// A Reg is a general-purpose register of amd64 or arm64. The numbers are this package's own and
// follow neither pt_regs nor DWARF; readers of registers map them by name.
type Reg uint8

const (
	NoReg Reg = iota

	RAX
	RBX
	RCX
	RDX
	RSI
	RDI
	RBP
	RSP
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15

	X0 // X0 + n is Xn
	X1
	X2
	X3
	X4
	X5
	X6
	X7
	X8
	X9
	X10
	X11
	X12
	X13
	X14
	X15
	X16
	X17
	X18
	X19
	X20
	X21
	X22
	X23
	X24
	X25
	X26
	X27
	X28
	X29
	X30
	SP
)

var regNames = [...]string{
	"none",
	"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
	"x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
}

// String is the assembler's name of the whole register.
func (r Reg) String() string {
	if int(r) < len(regNames) {
		return regNames[r]
	}
	return "invalid"
}

// parseReg returns the register that contains the assembler's name: RAX for rax, eax, ax and al.
// The width is not returned, as an operand has its own. ah and the like are unknown: they are not
// the low part of a register.
func parseReg(machine elf.Machine, name string) (Reg, bool) {
	switch machine {
	case elf.EM_X86_64:
		for r := RAX; r <= R15; r++ {
			if namesAMD64(r, name) {
				return r, true
			}
		}
	case elf.EM_AARCH64:
		for r := X0; r <= SP; r++ {
			if whole := r.String(); name == whole || r != SP && name == "w"+whole[1:] {
				return r, true
			}
		}
	}
	return NoReg, false
}

func namesAMD64(r Reg, name string) bool {
	whole := r.String()
	if r >= R8 {
		suffix, found := strings.CutPrefix(name, whole)
		return found && (suffix == "" || suffix == "d" || suffix == "w" || suffix == "b")
	}
	stem := whole[1:] // ax, si
	low := stem + "l" // sil
	if stem[1] == 'x' {
		low = stem[:1] + "l" // al
	}
	return name == whole || name == "e"+stem || name == stem || name == low
}
