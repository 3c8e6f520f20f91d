package attach

import "github.com/vmprof-agent/vmprof-agent/elffile"

// argumentRegisters hold a function's integer arguments at its entry: System V ABI, AMD64 supplement, section 3.2.3.
var argumentRegisters = [...]elffile.Reg{elffile.RDI, elffile.RSI, elffile.RDX, elffile.RCX, elffile.R8, elffile.R9}
