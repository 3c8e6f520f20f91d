#include "textflag.h"

// Each loop begins with the load of its count. The instruction behind it is the one that is probed, and is the
// first of the loop. Bytes are written out where the assembler would choose another form.

TEXT ·loopNop(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
nop:
	BYTE $0x90
	DECQ CX
	JNZ  nop
	RET

TEXT ·loopNop5(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
nop5:
	BYTE $0x0f; BYTE $0x1f; BYTE $0x44; BYTE $0x00; BYTE $0x00
	DECQ CX
	JNZ  nop5
	RET

TEXT ·loopLongNop(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
longnop:
	BYTE $0x0f; BYTE $0x1f; BYTE $0x40; BYTE $0x00
	DECQ CX
	JNZ  longnop
	RET

TEXT ·loopPush(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
push:
	PUSHQ BP
	POPQ  BP
	DECQ  CX
	JNZ   push
	RET

TEXT ·loopJump(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
jump:
	BYTE $0xeb; BYTE $0x00
	DECQ CX
	JNZ  jump
	RET

TEXT ·loopCondJump(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
condjump:
	BYTE $0x74; BYTE $0x00
	DECQ CX
	JNZ  condjump
	RET

TEXT ·loopCall(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ n+0(FP), CX
call:
	CALL ·callee(SB)
	DECQ CX
	JNZ  call
	RET

TEXT ·callee(SB), NOSPLIT, $0-0
	RET

TEXT ·loopStepped(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
stepped:
	MOVQ CX, AX
	DECQ CX
	JNZ  stepped
	RET

// func addresses(to *[8]unsafe.Pointer)
TEXT ·addresses(SB), NOSPLIT, $0-8
	MOVQ to+0(FP), CX
	LEAQ ·loopStepped(SB), AX
	MOVQ AX, 0(CX)
	LEAQ ·loopNop(SB), AX
	MOVQ AX, 8(CX)
	LEAQ ·loopNop5(SB), AX
	MOVQ AX, 16(CX)
	LEAQ ·loopLongNop(SB), AX
	MOVQ AX, 24(CX)
	LEAQ ·loopPush(SB), AX
	MOVQ AX, 32(CX)
	LEAQ ·loopJump(SB), AX
	MOVQ AX, 40(CX)
	LEAQ ·loopCondJump(SB), AX
	MOVQ AX, 48(CX)
	LEAQ ·loopCall(SB), AX
	MOVQ AX, 56(CX)
	RET
