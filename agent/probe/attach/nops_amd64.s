#include "textflag.h"

// Functions begin at multiples of 32 bytes, so that neither NOP crosses a page. Go keeps nothing below the stack pointer.

TEXT ·nop5(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x0f; BYTE $0x1f; BYTE $0x44; BYTE $0x00; BYTE $0x00
	RET

TEXT ·nop10(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x66; BYTE $0x2e; BYTE $0x0f; BYTE $0x1f; BYTE $0x84
	BYTE $0x00; BYTE $0x00; BYTE $0x00; BYTE $0x00; BYTE $0x00
	RET

// func nops() (five, ten *byte)
TEXT ·nops(SB), NOSPLIT, $0-16
	LEAQ ·nop5(SB), AX
	MOVQ AX, five+0(FP)
	LEAQ ·nop10(SB), AX
	MOVQ AX, ten+8(FP)
	RET
