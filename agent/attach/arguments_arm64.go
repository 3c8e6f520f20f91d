package attach

import "github.com/vmprof-agent/vmprof-agent/elffile"

// argumentRegisters hold a function's integer arguments at its entry: AAPCS64, section 6.8.2.
var argumentRegisters = [...]elffile.Reg{
	elffile.X0, elffile.X1, elffile.X2, elffile.X3, elffile.X4, elffile.X5, elffile.X6, elffile.X7,
}
