package attach

import "github.com/vmprof-agent/vmprof-agent/elffile"

// registerOffset returns where the kernel saves a register: bytes into struct pt_regs
// (arch/x86/include/asm/ptrace.h).
func registerOffset(r elffile.Reg) (offset uint8, ok bool) {
	offset, ok = map[elffile.Reg]uint8{
		elffile.R15: 0, elffile.R14: 8, elffile.R13: 16, elffile.R12: 24, elffile.RBP: 32, elffile.RBX: 40,
		elffile.R11: 48, elffile.R10: 56, elffile.R9: 64, elffile.R8: 72, elffile.RAX: 80, elffile.RCX: 88,
		elffile.RDX: 96, elffile.RSI: 104, elffile.RDI: 112, elffile.RSP: 152,
	}[r]
	return offset, ok
}

// argumentRegisters hold a function's integer arguments at its entry: System V ABI, AMD64
// supplement, section 3.2.3.
var argumentRegisters = [...]elffile.Reg{elffile.RDI, elffile.RSI, elffile.RDX, elffile.RCX, elffile.R8, elffile.R9}
