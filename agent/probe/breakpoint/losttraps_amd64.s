#include "textflag.h"

// A signal handler, which the kernel calls with the ucontext in DX: it counts, and returns to the restorer. Some hypervisors
// report INT1 (0xf1) with the address of the instruction, not of the next one, and the program would execute it forever: the
// handler steps over it. 168 is the offset of RIP (uc_mcontext.gregs[REG_RIP] of sys/ucontext.h).
TEXT ·onTrap(SB), NOSPLIT|NOFRAME, $0-0
	LOCK
	INCQ ·trapsLost(SB)
	MOVQ 168(DX), AX
	CMPB (AX), $0xf1
	JNE  counted
	INCQ 168(DX)

counted:
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
