#include "textflag.h"

// A signal handler, which the kernel calls: it counts, and returns to the restorer.
TEXT ·onTrap(SB), NOSPLIT|NOFRAME, $0-0
	LOCK
	INCQ ·trapsLost(SB)
	RET

// A restorer: rt_sigreturn, which does not return.
TEXT ·afterTrap(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ $15, AX
	SYSCALL
	INT  $3

// func trapHandler() (handler, restorer uintptr)
TEXT ·trapHandler(SB), NOSPLIT, $0-16
	LEAQ ·onTrap(SB), AX
	MOVQ AX, handler+0(FP)
	LEAQ ·afterTrap(SB), AX
	MOVQ AX, restorer+8(FP)
	RET

// func int1()
TEXT ·int1(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0xf1
	RET
