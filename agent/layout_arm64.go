package agent

import "github.com/vmprof-agent/vmprof-agent/elffile"

// registerOffset is where the kernel keeps a register: bytes into struct pt_regs
// (arch/arm64/include/asm/ptrace.h). HotSpot frames are not walked on arm64 yet, so nothing asks.
var registerOffset = map[elffile.Reg]uint8{}
