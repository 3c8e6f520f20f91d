package attach

import "github.com/vmprof-agent/vmprof-agent/elffile"

// registerOffset returns where the kernel saves a register: bytes into struct user_pt_regs, x0 to
// x30, then sp (arch/arm64/include/uapi/asm/ptrace.h).
func registerOffset(r elffile.Reg) (offset uint8, ok bool) {
	if r < elffile.X0 || r > elffile.SP {
		return 0, false
	}
	return uint8(r-elffile.X0) * 8, true
}

// argumentRegisters hold a function's integer arguments at its entry: AAPCS64, section 6.8.2.
var argumentRegisters = [...]elffile.Reg{
	elffile.X0, elffile.X1, elffile.X2, elffile.X3, elffile.X4, elffile.X5, elffile.X6, elffile.X7,
}
