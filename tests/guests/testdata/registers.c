//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls vmprof_stub as compiled code does, with every register marked, and prints the countdown and what was lost. */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>

#define GENERAL 16
#define VECTORS 16

/* What registers hold before and after a call of the stub; of vector registers the upper half too, where it exists. */
struct registers {
	uint64_t general[GENERAL];
	uint64_t vectors[VECTORS][2];
};

/* Loads all registers, calls the stub for method 7 with the stack misaligned by as much, and stores all registers. */
void visit(const struct registers *before, struct registers *after, uint64_t misaligned);

#if defined(__x86_64__)
#define EACH_GENERAL(X)                                                                                                \
	X(0, rax) X(1, rcx) X(2, rdx) X(3, rsi) X(4, r8) X(5, r9) X(6, r10) X(7, r11) X(8, rbp) X(9, rbx) X(10, r12)   \
	X(11, r13) X(12, r14) X(13, r15)
#define SAVED 14 /* rdi and rsp are the harness's; rdi is compared as number 14 */
#define EACH_VECTOR(X)                                                                                                 \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD(i, r) "\tmovq 8*" #i "(%rdi), %" #r "\n"
#define STORE(i, r) "\tmovq %" #r ", 8*" #i "(%rdi)\n"
#define LOADV(i) "\tmovups 128+16*" #i "(%rdi), %xmm" #i "\n"
#define STOREV(i) "\tmovups %xmm" #i ", 128+16*" #i "(%rdi)\n"
__asm__("\t.text\n"
	"\t.globl visit\n"
	"visit:\n"
	"\tpushq %rbx\n\tpushq %rbp\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n"
	"\tpushq %rsi\n" /* after */
	"\tmovq %rsp, saved(%rip)\n"
	"\tsubq %rdx, %rsp\n"
	EACH_VECTOR(LOADV) EACH_GENERAL(LOAD)
	"\tleaq 1f(%rip), %rdi\n"
	"\tpushq %rdi\n" /* as if a call had come here from before label 1 */
	"\tmovl $0x5a5a, %edi\n"
	"\tpushq $7\n"
	"\tcall vmprof_stub\n"
	"\tpushq %rdi\n"
	"\tpopq found(%rip)\n"
	"\tpopq %rdi\n" /* the return address: the callee is gone */
	"1:\tmovq saved(%rip), %rsp\n"
	"\tpopq %rdi\n"
	EACH_GENERAL(STORE) EACH_VECTOR(STOREV)
	"\tpopq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbp\n\tpopq %rbx\n"
	"\tret\n");
uint64_t saved, found = 0x5a5a;
#else
#define SAVED 15
#define EACH_GENERAL(X)                                                                                                \
	X(0, x0) X(1, x1) X(2, x2) X(3, x3) X(4, x4) X(5, x5) X(6, x6) X(7, x7) X(8, x8) X(9, x9) X(10, x10)           \
	X(11, x11) X(12, x12) X(13, x13) X(14, x14)
#define EACH_VECTOR(X)                                                                                                 \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD(i, r) "\tldr " #r ", [x19, #8*" #i "]\n"
#define STORE(i, r) "\tstr " #r ", [x20, #8*" #i "]\n"
#define LOADV(i) "\tldr q" #i ", [x19, #128+16*" #i "]\n"
#define STOREV(i) "\tstr q" #i ", [x20, #128+16*" #i "]\n"
__asm__("\t.text\n"
	"\t.globl visit\n"
	"visit:\n" /* sp is always aligned here */
	"\tstp x29, x30, [sp, #-112]!\n"
	"\tstp x19, x20, [sp, #16]\n"
	"\tstp d8, d9, [sp, #32]\n\tstp d10, d11, [sp, #48]\n\tstp d12, d13, [sp, #64]\n\tstp d14, d15, [sp, #80]\n"
	"\tmov x19, x0\n\tmov x20, x1\n"
	EACH_VECTOR(LOADV) EACH_GENERAL(LOAD)
	"\tmov x17, x30\n"
	"\tmov w16, #7\n"
	"\tbl vmprof_stub\n"
	EACH_GENERAL(STORE) EACH_VECTOR(STOREV)
	"\tldr x9, [sp, #8]\n"
	"\tsub x9, x9, x30\n" /* 0 if x30 is again what it was */
	"\tadrp x10, found\n\tadd x10, x10, :lo12:found\n\tldr x11, [x10]\n\tadd x11, x11, x9\n\tstr x11, [x10]\n"
	"\tldp d8, d9, [sp, #32]\n\tldp d10, d11, [sp, #48]\n\tldp d12, d13, [sp, #64]\n\tldp d14, d15, [sp, #80]\n"
	"\tldp x19, x20, [sp, #16]\n"
	"\tldp x29, x30, [sp], #112\n"
	"\tret\n");
uint64_t found = 0x5a5a;
#endif

int main(void)
{
	struct vmprof_slot *slot = vmprof_thread_begin();
	struct registers before, after;

	slot->skip = 2;
	slot->left = 2;
	slot->stride = 3;
	slot->armed = 1;
	for (int visits = 0; visits < 6; visits++) {
		int lost = found != 0x5a5a;

		for (int i = 0; i < GENERAL; i++)
			before.general[i] = 0x1111111111111111u * (unsigned)(i + 1) + (unsigned)visits;
		for (int i = 0; i < VECTORS; i++)
			before.vectors[i][0] = before.vectors[i][1] = 0xabcdef00u + (unsigned)(i * 16 + visits);
		memset(&after, 0, sizeof(after));
		visit(&before, &after, 8u * (unsigned)(visits % 2));
		lost += found != 0x5a5a;
		for (int i = 0; i < SAVED; i++)
			lost += after.general[i] != before.general[i];
		for (int i = 0; i < VECTORS; i++)
			lost += memcmp(after.vectors[i], before.vectors[i], sizeof(before.vectors[i])) != 0;
		printf("armed %u skip %u left %u lost %d\n", slot->armed, slot->skip, slot->left, lost);
	}
	return vmprof_start("registers") != 0;
}
