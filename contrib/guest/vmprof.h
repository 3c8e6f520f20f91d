/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmprof.h: a VM includes this header so that vmprof-agent can sample its calls. It needs C11 or C++11, GCC or clang,
 * Linux on x86-64 or arm64, libc and pthreads. docs/guests.md is the guide.
 *
 * One file of the VM defines VMPROF_IMPLEMENTATION before its first #include, which must be this one. Then:
 *
 *	vmprof_start("myvm");                  once; starts a helper thread that connects, and reconnects, to the agent
 *	vmprof_method(id, name, file, ...);    after generating code; vmprof_forget(id, begin) when it is freed
 *	slot = vmprof_thread_begin();          in every thread that runs the VM's programs; vmprof_thread_end() at its end
 *	vmprof_enter(id, site);                at the start of every method (interpreters); JITs emit the same, see below
 *	VMPROF_TIMER_START(id, version);       and _STOP: where an invocation of a version of a method begins and ends, if
 *	                                       the agent may compare how fast the versions are
 *
 * While no burst is sampled, each call costs a load, a compare and a branch that is not taken. A VM whose methods begin
 * with such a check anyway can share it, so that a call costs nothing more: see "sharing the VM's own check". No call
 * from the VM blocks on the agent. Without an agent, nothing is sampled.
 */
#ifndef VMPROF_H
#define VMPROF_H

#if defined(VMPROF_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* secure_getenv, MAP_ANONYMOUS and others under -std=c11 */
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the page that VM and agent share ---- */

#define VMPROF_VERSION 1
#define VMPROF_SOCKET_PATH "/run/vmprof-agent/guest.sock"
#define VMPROF_SLOTS 60
#define VMPROF_PAGE_SIZE 4096

/*
 * One thread's countdown. The agent fills it at a timer tick that interrupts this thread, and only while armed lacks
 * VMPROF_ARMED. The thread counts it down. An interrupt sees its own thread's writes in order, so only the compiler must
 * keep the order. Other threads write only armed, one bit at a time.
 */
struct vmprof_slot {
	volatile uint32_t armed;  /* not 0: prologues take the branch. First, so that JITs compare at offset 0 */
	volatile uint32_t skip;	  /* calls until the next sample; the first skip of a burst is random */
	volatile uint32_t left;	  /* samples until the burst ends; armed with none left: announce the thread again */
	volatile uint32_t stride; /* calls from one sample to the next */
	volatile uint32_t burst;  /* the agent's number of this burst */
	uint32_t pad[11];	  /* a cache line per thread */
};

#define VMPROF_ARMED 1u	    /* bit of armed: calls are counted */
#define VMPROF_REQUESTED 2u /* bit of armed: the VM wants the thread, see vmprof_request */

struct vmprof_page {
	uint32_t reserved[64]; /* the agent's */
	struct vmprof_slot slots[VMPROF_SLOTS];
};

/* ---- probe-NOPs ---- */

/*
 * VMPROF_PROBEn(name, arguments) is an instruction that does nothing, and a note in the file (as of systemtap's
 * sys/sdt.h, provider "vmprof") with its address and the locations of the arguments. Arguments are integers or
 * pointers, passed as 64 bits in a register or as a constant. The names call, thread and thread_end are reserved.
 *
 * The instruction is the one-byte NOP, which every kernel emulates. From Linux 6.18 on, the kernel replaces a probed
 * NOP of five bytes by a call. The call is faster, but it writes a return address below the stack pointer: into the red
 * zone, where a function that calls nothing keeps variables. Only assembly code that does not use the red zone may
 * contain that NOP: see vmprof_armed.
 */
#if !defined(__x86_64__) && !defined(__aarch64__)
#error "vmprof.h knows x86-64 and arm64; include it for these only"
#endif

/* An ELF note {sizes, type 3, "stapsdt", {addresses of site, base, semaphore, then three strings}}. */
#define VMPROF_SITE_(name, arguments) VMPROF_SITE_ON_("nop", name, arguments)
#define VMPROF_SITE_ON_(instruction, name, arguments)                                                                  \
	"990:\t" instruction "\n"                                                                                      \
		    "\t.pushsection .note.stapsdt, \"?\", \"note\"\n"                                                  \
		    "\t.balign 4\n"                                                                                    \
		    "\t.4byte 992f - 991f, 994f - 993f, 3\n"                                                           \
		    "991:\t.asciz \"stapsdt\"\n"                                                                       \
		    "992:\t.balign 4\n"                                                                                \
		    "993:\t.8byte 990b, _.stapsdt.base, 0\n"                                                           \
		    "\t.asciz \"vmprof\"\n"                                                                            \
		    "\t.asciz \"" #name "\"\n"                                                                         \
		    "\t.asciz \"" arguments "\"\n"                                                                     \
		    "994:\t.balign 4\n"                                                                                \
		    "\t.popsection\n"                                                                                  \
		    "\t.ifndef _.stapsdt.base\n"                                                                       \
		    "\t.pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"                      \
		    "\t.weak _.stapsdt.base\n"                                                                         \
		    "\t.hidden _.stapsdt.base\n"                                                                       \
		    "_.stapsdt.base:\n"                                                                                \
		    "\t.space 1\n"                                                                                     \
		    "\t.size _.stapsdt.base, 1\n"                                                                      \
		    "\t.popsection\n"                                                                                  \
		    "\t.endif\n"

#define VMPROF_ARG_(x) "nr"((uint64_t)(uintptr_t)(x))
#define VMPROF_PROBE1(name, a) __asm__ volatile(VMPROF_SITE_(name, "8@%0") : : VMPROF_ARG_(a))
#define VMPROF_PROBE2(name, a, b)                                                                                      \
	__asm__ volatile(VMPROF_SITE_(name, "8@%0 8@%1") : : VMPROF_ARG_(a), VMPROF_ARG_(b))
#define VMPROF_PROBE3(name, a, b, c)                                                                                   \
	__asm__ volatile(VMPROF_SITE_(name, "8@%0 8@%1 8@%2") : : VMPROF_ARG_(a), VMPROF_ARG_(b), VMPROF_ARG_(c))
#define VMPROF_PROBE4(name, a, b, c, d)                                                                                \
	__asm__ volatile(VMPROF_SITE_(name, "8@%0 8@%1 8@%2 8@%3")                                                     \
			 : : VMPROF_ARG_(a), VMPROF_ARG_(b), VMPROF_ARG_(c), VMPROF_ARG_(d))
#define VMPROF_PROBE5(name, a, b, c, d, e)                                                                             \
	__asm__ volatile(VMPROF_SITE_(name, "8@%0 8@%1 8@%2 8@%3 8@%4")                                                \
			 : : VMPROF_ARG_(a), VMPROF_ARG_(b), VMPROF_ARG_(c), VMPROF_ARG_(d), VMPROF_ARG_(e))
#define VMPROF_PROBE6(name, a, b, c, d, e, f)                                                                          \
	__asm__ volatile(VMPROF_SITE_(name, "8@%0 8@%1 8@%2 8@%3 8@%4 8@%5")                                           \
			 : : VMPROF_ARG_(a), VMPROF_ARG_(b), VMPROF_ARG_(c), VMPROF_ARG_(d), VMPROF_ARG_(e),           \
			   VMPROF_ARG_(f))

/* ---- the prologue's check ---- */

/* The slot of this thread. Before vmprof_thread_begin(), and if no slot is free, it is one that is never armed. */
#define VMPROF_TLS_ __attribute__((visibility("hidden"), tls_model("initial-exec"))) __thread
extern VMPROF_TLS_ struct vmprof_slot *vmprof_self;

/*
 * Counts a call of the method callee while the slot is armed. The agent samples every stride'th call. site identifies
 * the caller: it is the return address in registered code or, for interpreters, the address of the bytecode after the
 * call, in registered bytecode.
 */
void vmprof_armed(uint32_t callee, const void *site);

/* The check, for interpreters and for methods that are compiled to C. */
static inline void vmprof_enter(uint32_t callee, const void *site)
{
	if (__builtin_expect(__atomic_load_n(&vmprof_self->armed, __ATOMIC_RELAXED) != 0, 0))
		vmprof_armed(callee, site);
}

/*
 * The same check for JITs. Emit it at the entry of a method, before the method stores anything on the stack:
 *
 *	x86-64	entry:	cmp dword [slot], 0	; slot: what vmprof_thread_begin returned, in a register for example
 *			jne cold
 *		body:	...
 *		cold:	push callee		; 32 bits
 *			call vmprof_stub	; finds the method's return address above the callee, and pops the callee
 *			jmp body
 *
 *	arm64	entry:	ldr w16, [slot]
 *			cbnz w16, cold
 *		body:	...
 *		cold:	mov x17, x30		; the method's return address
 *			mov w16, callee		; movz, movk
 *			bl vmprof_stub		; returns with x30 as it was
 *			b body
 *
 * The stub preserves all registers, including vector registers, except the flags and, on arm64, x16 and x17. It uses
 * less than 256 bytes of stack. The stack may have any alignment. The stub has no C signature: use only its address.
 */
void vmprof_stub(void);

/*
 * ---- sharing the VM's own check ----
 *
 * A VM whose methods begin with a check of a flag of their thread, such as a yieldpoint or a safepoint poll, can have that
 * check read the word armed of the slot. Then sampling adds no instruction to any method (Arnold & Grove, figure 4). The
 * VM raises its flag with vmprof_request instead of a store, and the routine behind the check begins like this:
 *
 *	if (vmprof_answer(slot))
 *		...					what the check was there for
 *	vmprof_armed(callee, site);			only at the entry of a method
 *
 * Checks elsewhere, at back edges of loops for example, test for values above VMPROF_ARMED: they find requests only.
 *
 * Every thread needs a word of its own. So give vmprof_thread_begin_with() one for when no slot is free.
 */

/*
 * Makes the check of a thread find something, from any thread. The slot must not be given back meanwhile. What is asked
 * for must be somewhere else too: an answer may come more than once. An agent that misbehaves can delay the answer by
 * clearing the word. A VM that does not trust it that far repeats the request while it waits.
 */
void vmprof_request(struct vmprof_slot *slot);

/* Takes the request back. Returns whether there was one. For the thread of the slot. */
int vmprof_answer(struct vmprof_slot *slot);

/* ---- methods, threads, connection: safe from any thread at any time, but not from signal handlers ---- */

/* A call in compiled code. */
struct vmprof_site {
	uint32_t offset; /* of the return address from the method's begin, bytes */
	uint32_t line;	 /* in the method's file, 0 if unknown */
};

/*
 * Registers [begin, begin + size) as code (or bytecode) of the method id. An id is not 0 and has the same name for the
 * life of the process. Copies its arguments; names are cut to 1000 bytes. Returns 0, ENOMEM, or EINVAL for an id or a
 * size of 0. After an error the method has no name.
 */
int vmprof_method(uint32_t id, const char *name, const char *file, uint32_t line, const void *begin, uint32_t size,
		  const struct vmprof_site *sites, uint32_t count);

/* Removes the code of the method at begin. Call it before the memory is used for other code. */
void vmprof_forget(uint32_t id, const void *begin);

/*
 * Assigns a slot to the calling thread and returns it. Call it on the thread that runs the VM's programs, because the
 * agent arms slots by kernel thread. If no slot is free, the returned one is never armed. A thread that ends frees its
 * slot.
 */
struct vmprof_slot *vmprof_thread_begin(void);
void vmprof_thread_end(void);

/* The same, for a shared check: if no slot is free, returns own, which must be zero and exist while the thread uses it. */
struct vmprof_slot *vmprof_thread_begin_with(struct vmprof_slot *own);

/* Returns how often vmprof_thread_begin() found no free slot since the process started. */
unsigned vmprof_unslotted(void);

/*
 * Starts the helper thread, which connects to the agent's socket ($VMPROF_SOCKET if set). It retries every second while
 * there is no agent. runtime is the name of the VM, at most 15 bytes. Returns 0, also if the thread already runs, or an
 * errno value. A forked child has no helper thread, and is not armed unless it calls this function again.
 */
int vmprof_start(const char *runtime);

/* Disconnects and ends the helper thread. Slots stay valid but are no longer armed. */
void vmprof_stop(void);

/* Returns whether an agent is connected. */
int vmprof_connected(void);

/* ---- timings: which version of a method is faster ---- */

/*
 * vmprof-agent audit times invocations of a method, and iterations of its loops, for each version of its code, and says
 * which version is faster. While nobody audits, each macro costs a load, a compare and a branch that is not taken.
 *
 * VMPROF_TIMER_START(method, version) begins an invocation, VMPROF_TIMER_STOP ends it: both in the same function, or in
 * code that runs with the same stack pointer. Timers nest, and methods may recurse. An invocation that never stops,
 * because of an exception or longjmp for example, has no timing: its timer is dropped when a frame further out starts or
 * stops one. If invocations have no frames on the stack of their own, as in some interpreters, call VMPROF_TIMER_CANCEL
 * for each one that is unwound. A thread keeps 32 timers; if invocations of audited methods are nested more deeply, the
 * outer ones have no timing.
 *
 * VMPROF_LOOP(method, loop, n) is a timing point in a loop: the time since the previous point of the same loop in this
 * invocation is that of n iterations, n being more than 1 where the compiler merged points. Loops are numbered from 1.
 * Eight loops of an invocation are timed.
 *
 * method is an id as of vmprof_method. Timings begin with the first invocation that starts while the agent audits.
 * Clock: clock_gettime(CLOCK_MONOTONIC), which the vDSO answers in about 25 ns without a system call. The time stamp
 * counter would cost half as much, but is no clock on every machine: it may differ between CPUs.
 */
extern __attribute__((visibility("hidden"))) uint32_t vmprof_audited; /* not 0 while the agent takes timings */

static inline int vmprof_timing(void)
{
	return __builtin_expect(__atomic_load_n(&vmprof_audited, __ATOMIC_RELAXED) != 0, 0);
}

#define VMPROF_TIMER_START(method, version) VMPROF_TIMING_(vmprof_timer_start(method, version))
#define VMPROF_TIMER_STOP(method, version) VMPROF_TIMING_(vmprof_timer_stop(method, version))
#define VMPROF_TIMER_CANCEL(method, version) VMPROF_TIMING_(vmprof_timer_cancel(method, version))
#define VMPROF_LOOP(method, loop, n) VMPROF_TIMING_(vmprof_loop(method, loop, n))
/* What follows the call keeps compilers from making it a tail call, which would run with the stack pointer of the caller. */
#define VMPROF_TIMING_(call)                                                                                           \
	do {                                                                                                           \
		if (vmprof_timing()) {                                                                                 \
			call;                                                                                          \
			__asm__ volatile("" : : : "memory");                                                           \
		}                                                                                                      \
	} while (0)

/*
 * What the macros call. Compilers may emit calls of these functions, but no tail calls. The functions, too, do nothing while
 * nobody audits.
 */
void vmprof_timer_start(uint32_t method, uint32_t version);
void vmprof_timer_stop(uint32_t method, uint32_t version);
void vmprof_timer_cancel(uint32_t method, uint32_t version);
void vmprof_loop(uint32_t method, uint32_t loop, uint64_t n);

/*
 * Chooses a version to run at random, below versions, which is at least 1. While method is not audited, it is version 0:
 * put the version there that is best as far as you know.
 */
uint32_t vmprof_random_version(uint32_t method, uint32_t versions);
static inline uint32_t vmprof_choose(uint32_t method, uint32_t versions)
{
	return vmprof_timing() ? vmprof_random_version(method, versions) : 0;
}

/* Names a version of a method, for people. Copies the name, at most 1000 bytes. Returns 0, ENOMEM or EINVAL. */
int vmprof_version(uint32_t method, uint32_t version, const char *name);

#ifdef __cplusplus
}
#endif
#endif /* VMPROF_H */

#if defined(VMPROF_IMPLEMENTATION) && !defined(VMPROF_IMPLEMENTED)
#define VMPROF_IMPLEMENTED

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- armed calls ---- */

static struct vmprof_slot vmprof_never_; /* stays 0 */
static struct vmprof_page *vmprof_page_; /* mapped once, at one address for good */

VMPROF_TLS_ struct vmprof_slot *vmprof_self = &vmprof_never_;

/* The connections so far, and for each slot the one in which its thread was last announced. */
static uint32_t vmprof_connection_, vmprof_announced_[VMPROF_SLOTS];

/* Reports to the agent's kernel side which kernel thread owns the slot. */
static inline void vmprof_announce_(struct vmprof_slot *slot)
{
	ptrdiff_t index = slot - vmprof_page_->slots;
	uint32_t connection = __atomic_load_n(&vmprof_connection_, __ATOMIC_SEQ_CST);

	VMPROF_PROBE1(thread, index);
	__atomic_store_n(&vmprof_announced_[index], connection, __ATOMIC_SEQ_CST);
}

/*
 * The parts of vmprof_armed before and after its probe. Both run under vmprof_stub, which preserves only the general
 * registers here. clang for arm64 has no such option per function, but it uses no vectors here, because all data is
 * volatile.
 */
#if defined(__clang__) && defined(__aarch64__)
#define VMPROF_GENERAL_
#else
#define VMPROF_GENERAL_ , target("general-regs-only")
#endif
#define VMPROF_ARMED_ __attribute__((noinline, used, visibility("hidden"), no_instrument_function VMPROF_GENERAL_))

VMPROF_ARMED_ int vmprof_count_(void);
VMPROF_ARMED_ void vmprof_shown_(void);
VMPROF_ARMED_ void vmprof_disarm_(struct vmprof_slot *slot);

/* Leaves the VM's bit as it is. */
VMPROF_ARMED_ void vmprof_disarm_(struct vmprof_slot *slot)
{
	__atomic_and_fetch(&slot->armed, ~VMPROF_ARMED, __ATOMIC_RELAXED);
}

/* Counts a call. Returns whether the agent samples it. */
VMPROF_ARMED_ int vmprof_count_(void)
{
	struct vmprof_slot *slot = vmprof_self;
	uint32_t skip = slot->skip;

	if (!(slot->armed & VMPROF_ARMED))
		return 0; /* a request of the VM brought the thread here */
	if (slot->left == 0) {
		vmprof_disarm_(slot);
		vmprof_announce_(slot);
		return 0;
	}
	if (skip > 1) {
		slot->skip = skip - 1;
		return 0;
	}
	slot->skip = slot->stride;
	return 1;
}

VMPROF_ARMED_ void vmprof_shown_(void)
{
	struct vmprof_slot *slot = vmprof_self;
	uint32_t left = slot->left;

	slot->left = left - 1;
	if (left == 1)
		vmprof_disarm_(slot); /* last: from here on the agent may fill the slot again */
}

#if defined(__x86_64__)
/*
 * In assembly, because the probe on the hottest path should have the faster NOP of five bytes. Nothing is below the
 * stack pointer here. The NOP must not cross a page, or kernels do not replace it.
 */
__asm__("\t.pushsection .text\n"
	"\t.balign 16\n"
	"\t.globl vmprof_armed\n"
	"\t.hidden vmprof_armed\n"
	"\t.type vmprof_armed, @function\n"
	"vmprof_armed:\n" /* edi: callee, rsi: site */
	"\t.cfi_startproc\n"
	"\tendbr64\n"
	"\tpushq %rbp\n"
	"\t.cfi_def_cfa_offset 16\n"
	"\t.cfi_offset %rbp, -16\n"
	"\tmovq %rsp, %rbp\n"
	"\t.cfi_def_cfa_register %rbp\n"
	"\tpushq %rsi\n"
	"\tpushq %rdi\n"
	"\tcall vmprof_count_\n"
	"\ttestl %eax, %eax\n"
	"\tje 1f\n"
	"\tmovl (%rsp), %edi\n"
	"\tmovq 8(%rsp), %rsi\n"
	"\t.balign 8\n"
	VMPROF_SITE_ON_(".byte 0x0f, 0x1f, 0x44, 0, 0", call, "8@%rdi 8@%rsi")
	"\tcall vmprof_shown_\n"
	"1:\tleave\n"
	"\t.cfi_def_cfa %rsp, 8\n"
	"\tret\n"
	"\t.cfi_endproc\n"
	"\t.size vmprof_armed, . - vmprof_armed\n"
	"\t.popsection\n");
#else
VMPROF_ARMED_ void vmprof_armed(uint32_t callee, const void *site)
{
	if (!vmprof_count_())
		return;
	VMPROF_PROBE2(call, callee, site);
	vmprof_shown_();
}
#endif

#if defined(__x86_64__)
__asm__("\t.pushsection .text\n"
	"\t.balign 16\n"
	"\t.globl vmprof_stub\n"
	"\t.hidden vmprof_stub\n"
	"\t.type vmprof_stub, @function\n"
	"vmprof_stub:\n" /* 0(%rsp): return to the method, 8: callee, 16: return from the method */
	"\t.cfi_startproc\n"
	"\tendbr64\n"
	"\tpushq %rbp\n"
	"\t.cfi_def_cfa_offset 16\n"
	"\t.cfi_offset %rbp, -16\n"
	"\tmovq %rsp, %rbp\n"
	"\t.cfi_def_cfa_register %rbp\n"
	"\tpushq %rax\n"
	"\tpushq %rcx\n"
	"\tpushq %rdx\n"
	"\tpushq %rsi\n"
	"\tpushq %rdi\n"
	"\tpushq %r8\n"
	"\tpushq %r9\n"
	"\tpushq %r10\n"
	"\tpushq %r11\n"
	"\tandq $-16, %rsp\n" /* no matter how the JIT aligns its frames */
	"\tmovl 16(%rbp), %edi\n"
	"\tmovq 24(%rbp), %rsi\n"
	"\tcall vmprof_armed\n"
	"\tleaq -72(%rbp), %rsp\n"
	"\tpopq %r11\n"
	"\tpopq %r10\n"
	"\tpopq %r9\n"
	"\tpopq %r8\n"
	"\tpopq %rdi\n"
	"\tpopq %rsi\n"
	"\tpopq %rdx\n"
	"\tpopq %rcx\n"
	"\tpopq %rax\n"
	"\tpopq %rbp\n"
	"\t.cfi_def_cfa %rsp, 8\n"
	"\tret $8\n"
	"\t.cfi_endproc\n"
	"\t.size vmprof_stub, . - vmprof_stub\n"
	"\t.popsection\n");
#else
__asm__("\t.pushsection .text\n"
	"\t.balign 16\n"
	"\t.globl vmprof_stub\n"
	"\t.hidden vmprof_stub\n"
	"\t.type vmprof_stub, %function\n"
	"vmprof_stub:\n" /* w16: callee, x17: return from the method, x30: return to it */
	"\t.cfi_startproc\n"
	"\thint #34\n" /* bti c */
	"\tstp x29, x30, [sp, #-176]!\n"
	"\t.cfi_def_cfa_offset 176\n"
	"\t.cfi_offset x29, -176\n"
	"\t.cfi_offset x30, -168\n"
	"\tmov x29, sp\n"
	"\tstp x0, x1, [sp, #16]\n"
	"\tstp x2, x3, [sp, #32]\n"
	"\tstp x4, x5, [sp, #48]\n"
	"\tstp x6, x7, [sp, #64]\n"
	"\tstp x8, x9, [sp, #80]\n"
	"\tstp x10, x11, [sp, #96]\n"
	"\tstp x12, x13, [sp, #112]\n"
	"\tstp x14, x15, [sp, #128]\n"
	"\tstp x17, x18, [sp, #144]\n"
	"\tmov w0, w16\n"
	"\tmov x1, x17\n"
	"\tbl vmprof_armed\n"
	"\tldp x0, x1, [sp, #16]\n"
	"\tldp x2, x3, [sp, #32]\n"
	"\tldp x4, x5, [sp, #48]\n"
	"\tldp x6, x7, [sp, #64]\n"
	"\tldp x8, x9, [sp, #80]\n"
	"\tldp x10, x11, [sp, #96]\n"
	"\tldp x12, x13, [sp, #112]\n"
	"\tldp x14, x15, [sp, #128]\n"
	"\tldp x17, x18, [sp, #144]\n"
	"\tldp x29, x16, [sp], #176\n"
	"\t.cfi_def_cfa_offset 0\n"
	"\t.cfi_register x30, x16\n"
	"\tmov x30, x17\n"
	"\tbr x16\n"
	"\t.cfi_endproc\n"
	"\t.size vmprof_stub, . - vmprof_stub\n"
	"\t.popsection\n");
#endif

/* ---- messages: one packet each, host byte order ---- */

enum vmprof_to_agent_ { VMPROF_HELLO_ = 1, VMPROF_METHOD_, VMPROF_FORGET_, VMPROF_NAMED_ };
enum vmprof_to_guest_ { VMPROF_WELCOME_ = 1, VMPROF_REFUSED_, VMPROF_TIMINGS_ };

#define VMPROF_PACKET_ 4096
#define VMPROF_NAME_ 1000

struct vmprof_hello_ {
	uint32_t type, version;
	char runtime[16];
};

/* WELCOME, with the page's file descriptor; or REFUSED, which has a reason instead of the version, and nothing more. */
struct vmprof_welcome_ {
	uint32_t type, version, page_size, slots;
};
#define VMPROF_REFUSED_SOON_ 7 /* the reasons from here on pass by themselves */

/*
 * TIMINGS, with the file descriptor of struct vmprof_timings_: from an agent that audits, after WELCOME. Headers that do
 * not know it, or not this version of it, ignore it. Guests send NAMED only after it, since older agents do not know that.
 */
struct vmprof_offer_ {
	uint32_t type, version, rings, entries;
	uint64_t size;
};
#define VMPROF_TIMINGS_VERSION_ 1

struct vmprof_named_ { /* NAMED: then the name */
	uint32_t type, method, version, size;
};

struct vmprof_key_ { /* a whole FORGET, and the beginning of METHOD */
	uint32_t type, id;
	uint64_t begin;
	uint64_t time; /* CLOCK_MONOTONIC, ns: since when it is code, or no longer is. The agent receives it later */
};

struct vmprof_code_ { /* METHOD: then name, file, padding to 4 bytes, sites */
	struct vmprof_key_ key;
	uint32_t size, line;
	uint16_t name_size, file_size;
	uint32_t sites;
};

/* ---- registered methods: kept while the code exists, and sent again to the next agent ---- */

/* A METHOD packet, sent or pending, or a pending FORGET packet. The packet follows. */
struct vmprof_record_ {
	struct vmprof_record_ *next, *prev; /* in pending or sent */
	struct vmprof_record_ *chain;	    /* in its bucket; FORGETs are in none */
	uint32_t size;			    /* of the packet */
	uint32_t sent;
};

#define VMPROF_BUCKETS_ 4096

static struct {
	pthread_mutex_t lock;		     /* of all this */
	struct vmprof_record_ pending, sent; /* heads of rings, in the order of registration */
	struct vmprof_record_ unnamed, named; /* likewise, of NAMED packets */
	struct vmprof_record_ *buckets[VMPROF_BUCKETS_];
	pthread_t helper;
	int started, connected, stop;
	int wake;   /* eventfd: the helper has something to do */
	int socket; /* -1 if there is none */
	struct sockaddr_un address;
	char runtime[16];
} vmprof_ = {PTHREAD_MUTEX_INITIALIZER, {&vmprof_.pending, &vmprof_.pending, NULL, 0, 0},
	     {&vmprof_.sent, &vmprof_.sent, NULL, 0, 0}, {&vmprof_.unnamed, &vmprof_.unnamed, NULL, 0, 0},
	     {&vmprof_.named, &vmprof_.named, NULL, 0, 0}, {NULL}, 0, 0, 0, 0, -1, -1, {0, {0}}, {0}};

static struct vmprof_key_ *vmprof_packet_(struct vmprof_record_ *r) { return (struct vmprof_key_ *)(void *)(r + 1); }

static void vmprof_unlink_(struct vmprof_record_ *r)
{
	r->prev->next = r->next;
	r->next->prev = r->prev;
}

static void vmprof_append_(struct vmprof_record_ *ring, struct vmprof_record_ *r)
{
	r->next = ring;
	r->prev = ring->prev;
	r->prev->next = ring->prev = r;
}

static struct vmprof_record_ **vmprof_bucket_(uint64_t begin)
{
	return &vmprof_.buckets[begin * 0x9e3779b97f4a7c15u >> 52]; /* the upper 12 bits; a multiplicative hash */
}

static void vmprof_wake_(void)
{
	uint64_t one = 1;

	if (write(vmprof_.wake, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is awake */
}

static uint64_t vmprof_now_(void)
{
	struct timespec t = {0, 0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t vmprof_cut_(const char *s)
{
	size_t n = s ? strlen(s) : 0;

	return n < VMPROF_NAME_ ? n : VMPROF_NAME_;
}

/* One packet with as many sites as fit; the others go into further packets. Returns how many did, or -1. */
static int64_t vmprof_register_(struct vmprof_code_ code, const char *name, const char *file,
				const struct vmprof_site *sites, uint32_t count)
{
	size_t names = sizeof(code) + ((code.name_size + code.file_size + 3u) & ~3u);
	uint32_t room = (uint32_t)((VMPROF_PACKET_ - names) / sizeof(*sites));
	struct vmprof_record_ *r, **bucket = vmprof_bucket_(code.key.begin);
	unsigned char *text;

	code.sites = count < room ? count : room;
	r = (struct vmprof_record_ *)calloc(1, sizeof(*r) + names + code.sites * sizeof(*sites));
	if (!r)
		return -1;
	r->size = (uint32_t)(names + code.sites * sizeof(*sites));
	memcpy(r + 1, &code, sizeof(code));
	text = (unsigned char *)(r + 1) + sizeof(code);
	if (code.name_size)
		memcpy(text, name, code.name_size);
	if (code.file_size)
		memcpy(text + code.name_size, file, code.file_size);
	if (code.sites)
		memcpy((unsigned char *)(r + 1) + names, sites, code.sites * sizeof(*sites));

	pthread_mutex_lock(&vmprof_.lock);
	r->chain = *bucket;
	*bucket = r;
	vmprof_append_(&vmprof_.pending, r);
	if (vmprof_.connected)
		vmprof_wake_();
	pthread_mutex_unlock(&vmprof_.lock);
	return code.sites;
}

int vmprof_method(uint32_t id, const char *name, const char *file, uint32_t line, const void *begin, uint32_t size,
		  const struct vmprof_site *sites, uint32_t count)
{
	struct vmprof_code_ code = {{VMPROF_METHOD_, id, (uintptr_t)begin, vmprof_now_()}, size, line, 0, 0, 0};
	int64_t done;

	if (id == 0 || size == 0)
		return EINVAL;
	code.name_size = (uint16_t)vmprof_cut_(name);
	code.file_size = (uint16_t)vmprof_cut_(file);
	do {
		done = vmprof_register_(code, name, file, sites, count);
		if (done < 0)
			return ENOMEM;
		sites += done;
		count -= (uint32_t)done;
	} while (count > 0);
	return 0;
}

void vmprof_forget(uint32_t id, const void *begin)
{
	struct vmprof_record_ *r, **link = vmprof_bucket_((uintptr_t)begin);
	int told = 0;

	pthread_mutex_lock(&vmprof_.lock);
	while ((r = *link) != NULL) {
		struct vmprof_key_ *key = vmprof_packet_(r);

		if (key->id != id || key->begin != (uintptr_t)begin) {
			link = &r->chain;
			continue;
		}
		*link = r->chain;
		vmprof_unlink_(r);
		if (!r->sent || told) { /* the agent never heard of it, or will anyway */
			free(r);
			continue;
		}
		key->type = VMPROF_FORGET_;
		key->time = vmprof_now_();
		r->size = sizeof(*key);
		vmprof_append_(&vmprof_.pending, r);
		told = 1;
	}
	if (told && vmprof_.connected)
		vmprof_wake_();
	pthread_mutex_unlock(&vmprof_.lock);
}

int vmprof_version(uint32_t method, uint32_t version, const char *name)
{
	struct vmprof_named_ named = {VMPROF_NAMED_, method, version, (uint32_t)vmprof_cut_(name)};
	struct vmprof_record_ *r;

	if (method == 0)
		return EINVAL;
	r = (struct vmprof_record_ *)calloc(1, sizeof(*r) + sizeof(named) + named.size);
	if (!r)
		return ENOMEM;
	r->size = (uint32_t)sizeof(named) + named.size;
	memcpy(r + 1, &named, sizeof(named));
	if (named.size)
		memcpy((unsigned char *)(r + 1) + sizeof(named), name, named.size);
	pthread_mutex_lock(&vmprof_.lock);
	vmprof_append_(&vmprof_.unnamed, r);
	if (vmprof_timing())
		vmprof_wake_();
	pthread_mutex_unlock(&vmprof_.lock);
	return 0;
}

/* Marks all existing code as not sent. Called with the lock held. */
static void vmprof_unsend_(void)
{
	struct vmprof_record_ *r, *next;

	while ((r = vmprof_.unnamed.next) != &vmprof_.unnamed) {
		vmprof_unlink_(r);
		vmprof_append_(&vmprof_.named, r);
	}
	while ((r = vmprof_.named.next) != &vmprof_.named) {
		vmprof_unlink_(r);
		vmprof_append_(&vmprof_.unnamed, r);
	}
	for (r = vmprof_.pending.next; r != &vmprof_.pending; r = next) {
		next = r->next;
		vmprof_unlink_(r);
		if (vmprof_packet_(r)->type == VMPROF_FORGET_)
			free(r);
		else
			vmprof_append_(&vmprof_.sent, r);
	}
	while ((r = vmprof_.sent.next) != &vmprof_.sent) {
		vmprof_unlink_(r);
		r->sent = 0;
		vmprof_append_(&vmprof_.pending, r);
	}
}

/* ---- timings: a ring per slot, in memory that the agent shares while it audits ---- */

#define VMPROF_RING_ 4096      /* timings */
#define VMPROF_AUDITED_ 256    /* a power of 2 */
#define VMPROF_TIMERS_ 32      /* of a thread; a power of 2 */
#define VMPROF_LOOPS_ 8	       /* of an invocation */
#define VMPROF_CALIBRATE_ 1024 /* timings from one calibration to the next; a power of 2 */
#define VMPROF_ROUNDS_ 8       /* of a calibration: the first one finds cold caches */
#define VMPROF_STACK_ 0x100000 /* bytes that a frame may grow from the start of a timer to its end */

/* One timing. Times in ns. Method 0 is a calibration: what an empty invocation (loop 0), taking its timing (1) and an
 * empty iteration (2) last. */
struct vmprof_entry_ {
	uint32_t sequence; /* the low bits of its number, from 1 */
	uint32_t method, version;
	uint32_t loop;	   /* 0: the invocation */
	uint64_t duration; /* of the invocation, or since the previous point of the loop */
	uint64_t part;	   /* of that, what other timings of the invocation do not have */
	uint32_t runs;	   /* iterations */
	uint32_t timers;   /* timings of invocations that the thread took within duration */
	uint32_t points;   /* and of iterations */
	uint32_t thread;
};

struct vmprof_ring_ {
	/* the thread's */
	uint64_t head; /* timings so far */
	uint64_t full, deep, abandoned, unmatched; /* not taken, by reason */
	uint64_t pad[3];
	/* the agent's */
	uint64_t tail; /* timings read so far */
	uint64_t pad2[7];
};

struct vmprof_timings_ {
	uint32_t guest;	    /* the guest's: VMPROF_TIMINGS_VERSION_ once it has mapped this */
	uint32_t unslotted; /* the guest's: what is not timed as its thread has no slot */
	uint32_t loops;	    /* the agent's from here on: whether it wants timings of iterations */
	uint32_t pad[253];
	uint32_t audited[VMPROF_AUDITED_]; /* a hash table of ids; 0 is free */
	uint32_t pad2[512];
	struct vmprof_ring_ rings[VMPROF_SLOTS];
	uint32_t pad3[128];
	struct vmprof_entry_ entries[VMPROF_SLOTS][VMPROF_RING_];
};

/* The latest point of a loop. */
struct vmprof_since_ {
	uint32_t loop, timers, points;
	uint64_t time;
};

/* An invocation that was started. */
struct vmprof_timer_ {
	uint32_t method, version;
	uintptr_t frame;
	uint64_t start;
	uint64_t first, last;	 /* points of any loop: the first, and the latest that ended a timing; 0: none */
	uint32_t timers, points; /* of the thread at the start */
	uint32_t loops;		 /* in use */
	struct vmprof_since_ since[VMPROF_LOOPS_];
};

/* What a thread with a slot has. Static, because a library has little room for thread-local variables. */
static struct vmprof_timers_ {
	uint32_t epoch;	      /* vmprof_audited when the rest began */
	uint32_t bottom, top; /* of the stack, which is a ring; the outermost timers give way */
	uint32_t timers, points;
	uint32_t thread;
	uint64_t random;
	struct vmprof_timer_ stack[VMPROF_TIMERS_];
} vmprof_timers_[VMPROF_SLOTS];

uint32_t vmprof_audited;
static struct vmprof_timings_ *vmprof_timings_; /* mapped once, at one address for good */

/* Returns whether the agent audits the method. It is true for 0. */
static inline int vmprof_wanted_(uint32_t method)
{
	uint32_t i = method * 0x9e3779b1u >> 24, n;

	for (n = 0; n < VMPROF_AUDITED_; n++, i = (i + 1) % VMPROF_AUDITED_) {
		uint32_t id = __atomic_load_n(&vmprof_timings_->audited[i], __ATOMIC_RELAXED);

		if (id == method)
			return 1;
		if (id == 0)
			return 0;
	}
	return 0;
}

/* Returns the calling thread's timers, or NULL if it has no slot. */
static inline struct vmprof_timers_ *vmprof_mine_(void)
{
	uint32_t epoch = __atomic_load_n(&vmprof_audited, __ATOMIC_ACQUIRE);
	struct vmprof_slot *slot = vmprof_self;
	struct vmprof_timers_ *mine;

	if (epoch == 0)
		return NULL;
	if (slot == &vmprof_never_ && (slot = vmprof_thread_begin()) == &vmprof_never_) {
		__atomic_add_fetch(&vmprof_timings_->unslotted, 1, __ATOMIC_RELAXED);
		return NULL;
	}
	mine = &vmprof_timers_[slot - vmprof_page_->slots];
	if (mine->epoch != epoch) {
		mine->epoch = epoch;
		mine->bottom = mine->top = mine->timers = mine->points = 0;
		mine->thread = (uint32_t)syscall(SYS_gettid);
		mine->random = vmprof_now_() ^ ((uint64_t)mine->thread << 32) ^ 0x9e3779b97f4a7c15u;
	}
	return mine;
}

static inline struct vmprof_ring_ *vmprof_ring_of_(struct vmprof_timers_ *mine)
{
	return &vmprof_timings_->rings[mine - vmprof_timers_];
}

/* Counts a timing that is not taken. Only the thread writes the counter. */
static inline void vmprof_lost_(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* Drops the timers of frames that have ended: the stack has grown down from them. */
static inline void vmprof_prune_(struct vmprof_timers_ *mine, uintptr_t frame)
{
	while (mine->top != mine->bottom && mine->stack[(mine->top - 1) % VMPROF_TIMERS_].frame < frame) {
		mine->top--;
		vmprof_lost_(&vmprof_ring_of_(mine)->abandoned, 1);
	}
}

/* Puts a timing into the ring. Its sequence and thread are not set yet. */
static void vmprof_put_(struct vmprof_timers_ *mine, struct vmprof_entry_ *e)
{
	struct vmprof_ring_ *ring = vmprof_ring_of_(mine);
	uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);

	if (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= VMPROF_RING_) {
		vmprof_lost_(&ring->full, e->method != 0);
		return;
	}
	e->sequence = (uint32_t)(head + 1);
	e->thread = mine->thread;
	vmprof_timings_->entries[mine - vmprof_timers_][head % VMPROF_RING_] = *e;
	__atomic_store_n(&ring->head, head + 1, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) void vmprof_push_(uint32_t method, uint32_t version, uintptr_t frame)
{
	struct vmprof_timers_ *mine;
	struct vmprof_timer_ *t;

	if (!vmprof_wanted_(method) || !(mine = vmprof_mine_()))
		return;
	vmprof_prune_(mine, frame);
	if (mine->top - mine->bottom == VMPROF_TIMERS_) {
		mine->bottom++;
		vmprof_lost_(&vmprof_ring_of_(mine)->deep, 1);
	}
	t = &mine->stack[mine->top++ % VMPROF_TIMERS_];
	t->method = method;
	t->version = version;
	t->frame = frame;
	t->first = t->last = 0;
	t->timers = mine->timers;
	t->points = mine->points;
	t->loops = 0;
	t->start = vmprof_now_();
}

enum vmprof_end_ { VMPROF_TAKE_, VMPROF_CANCEL_, VMPROF_IGNORE_ };

/* Ends a timer. Returns the thread's timers if its timing is taken, else NULL. */
static __attribute__((noinline)) struct vmprof_timers_ *vmprof_pop_(uint32_t method, uint32_t version, uintptr_t frame,
								     enum vmprof_end_ how)
{
	struct vmprof_entry_ e = {0, method, version, 0, 0, 0, 1, 0, 0, 0};
	struct vmprof_timers_ *mine;
	struct vmprof_timer_ *t = NULL;
	uint64_t now;
	uint32_t i;

	if (!vmprof_wanted_(method) || !(mine = vmprof_mine_()))
		return NULL;
	now = vmprof_now_();
	vmprof_prune_(mine, frame);
	for (i = mine->top; i != mine->bottom; i--) {
		t = &mine->stack[(i - 1) % VMPROF_TIMERS_];
		if (t->method == method && t->version == version && t->frame - frame < VMPROF_STACK_)
			break;
	}
	if (i == mine->bottom) {
		vmprof_lost_(&vmprof_ring_of_(mine)->unmatched, 1);
		return NULL;
	}
	if (mine->top != i || how == VMPROF_CANCEL_)
		vmprof_lost_(&vmprof_ring_of_(mine)->abandoned, mine->top - i + (how == VMPROF_CANCEL_));
	mine->top = i - 1;
	if (how != VMPROF_TAKE_)
		return NULL;
	e.duration = now - t->start;
	e.part = e.duration - (t->last - t->first);
	e.timers = mine->timers - t->timers;
	e.points = mine->points - t->points;
	mine->timers++;
	vmprof_put_(mine, &e);
	return mine;
}

static __attribute__((noinline)) void vmprof_point_(uint32_t method, uint32_t loop, uint64_t n, uintptr_t frame)
{
	struct vmprof_entry_ e = {0, method, 0, loop, 0, 0, 0, 0, 0, 0};
	struct vmprof_timers_ *mine;
	struct vmprof_timer_ *t = NULL;
	struct vmprof_since_ *since;
	uint64_t now;
	uint32_t i;

	if (!vmprof_wanted_(method) || !(mine = vmprof_mine_()))
		return;
	now = vmprof_now_();
	vmprof_prune_(mine, frame);
	for (i = mine->top; i != mine->bottom; i--) {
		t = &mine->stack[(i - 1) % VMPROF_TIMERS_];
		if (t->method == method && t->frame - frame < VMPROF_STACK_)
			break;
	}
	if (i == mine->bottom) {
		vmprof_lost_(&vmprof_ring_of_(mine)->unmatched, 1);
		return;
	}
	for (i = 0; i < t->loops && t->since[i].loop != loop; i++)
		;
	if (i == VMPROF_LOOPS_) {
		vmprof_lost_(&vmprof_ring_of_(mine)->deep, 1);
		return;
	}
	since = &t->since[i];
	if (i == t->loops) {
		t->loops++;
		since->loop = loop;
		if (!t->first)
			t->first = t->last = now;
	} else {
		e.version = t->version;
		e.duration = now - since->time;
		e.part = now - t->last;
		e.runs = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
		e.timers = mine->timers - since->timers;
		e.points = mine->points - since->points;
		t->last = now;
		mine->points++;
		vmprof_put_(mine, &e);
	}
	since->time = now;
	since->timers = mine->timers;
	since->points = mine->points;
}

/* Times nothing, and how long that takes, so that the agent can subtract what timing adds. */
static __attribute__((noinline)) void vmprof_calibrate_(struct vmprof_timers_ *mine, uintptr_t frame)
{
	struct vmprof_entry_ e = {0, 0, 0, 1, 0, 0, 1, 0, 0, 0};
	uint64_t before, after, again;
	int round;

	for (round = 0; round < VMPROF_ROUNDS_; round++) {
		vmprof_push_(0, 0, frame);
		vmprof_point_(0, 2, 1, frame);
		vmprof_point_(0, 2, 1, frame);
		vmprof_pop_(0, 0, frame, VMPROF_IGNORE_);
		before = vmprof_now_();
		vmprof_push_(0, 0, frame);
		vmprof_pop_(0, 0, frame, VMPROF_TAKE_);
		after = vmprof_now_();
		again = vmprof_now_();
		e.duration = after - before > again - after ? after - before - (again - after) : 0;
		vmprof_put_(mine, &e);
	}
}

/*
 * These functions have frames of the same layout, so that frames of their callers can be compared by frames of theirs.
 * A thread without a slot has no timings.
 */
#define VMPROF_FRAME_ ((uintptr_t)__builtin_frame_address(0))

__attribute__((noinline)) void vmprof_timer_start(uint32_t method, uint32_t version)
{
	if (vmprof_timing() && method)
		vmprof_push_(method, version, VMPROF_FRAME_);
}

__attribute__((noinline)) void vmprof_timer_stop(uint32_t method, uint32_t version)
{
	struct vmprof_timers_ *mine;

	if (!vmprof_timing() || !method || !(mine = vmprof_pop_(method, version, VMPROF_FRAME_, VMPROF_TAKE_)))
		return;
	if (mine->timers % VMPROF_CALIBRATE_ == 1)
		vmprof_calibrate_(mine, VMPROF_FRAME_ - 1);
}

__attribute__((noinline)) void vmprof_timer_cancel(uint32_t method, uint32_t version)
{
	if (vmprof_timing() && method)
		vmprof_pop_(method, version, VMPROF_FRAME_, VMPROF_CANCEL_);
}

__attribute__((noinline)) void vmprof_loop(uint32_t method, uint32_t loop, uint64_t n)
{
	if (vmprof_timing() && method && n && __atomic_load_n(&vmprof_timings_->loops, __ATOMIC_RELAXED))
		vmprof_point_(method, loop, n, VMPROF_FRAME_);
}

uint32_t vmprof_random_version(uint32_t method, uint32_t versions)
{
	struct vmprof_timers_ *mine;

	if (!vmprof_timing() || !vmprof_wanted_(method) || !(mine = vmprof_mine_()))
		return 0;
	mine->random ^= mine->random << 13; /* xorshift64 (Marsaglia 2003) */
	mine->random ^= mine->random >> 7;
	mine->random ^= mine->random << 17;
	return (uint32_t)((mine->random >> 32) * versions >> 32);
}

/* Maps the memory of the agent's offer. Called with the lock held. */
static void vmprof_time_(const struct vmprof_offer_ *offer, int fd)
{
	const int access = PROT_READ | PROT_WRITE;
	void *map;

	if (offer->version != VMPROF_TIMINGS_VERSION_ || offer->rings != VMPROF_SLOTS || offer->entries != VMPROF_RING_ ||
	    offer->size != sizeof(struct vmprof_timings_) || vmprof_audited)
		return;
	if (!vmprof_timings_) {
		map = mmap(NULL, sizeof(*vmprof_timings_), access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (map == MAP_FAILED)
			return;
		vmprof_timings_ = (struct vmprof_timings_ *)map;
	}
	if (mmap(vmprof_timings_, sizeof(*vmprof_timings_), access, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return;
	__atomic_store_n(&vmprof_timings_->guest, VMPROF_TIMINGS_VERSION_, __ATOMIC_RELAXED);
	__atomic_store_n(&vmprof_audited, vmprof_connection_ ? vmprof_connection_ : 1, __ATOMIC_RELEASE);
}

/* Maps zeroes over it. Threads that are about to write a timing write it there. */
static void vmprof_untime_(void)
{
	__atomic_store_n(&vmprof_audited, 0, __ATOMIC_SEQ_CST);
	if (vmprof_timings_ && mmap(vmprof_timings_, sizeof(*vmprof_timings_), PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return; /* no memory: the agent, if it is gone, reads nothing */
}

/* ---- the page and its slots ---- */

static pthread_once_t vmprof_once_ = PTHREAD_ONCE_INIT;
static pthread_key_t vmprof_thread_key_; /* its destructor gives the slot back */
static uint64_t vmprof_claimed_;	 /* bit i: slot i has a thread */
static uint64_t vmprof_requested_;	 /* likewise: slot i has a request. Pages come and go, and the agent can write them */
static unsigned vmprof_unslotted_;

/* Writes the requests into the page, which is a new one. */
static void vmprof_renew_(void)
{
	uint64_t requested = __atomic_load_n(&vmprof_requested_, __ATOMIC_SEQ_CST);
	int slot;

	for (slot = 0; slot < VMPROF_SLOTS; slot++)
		if (requested >> slot & 1)
			__atomic_or_fetch(&vmprof_page_->slots[slot].armed, VMPROF_REQUESTED, __ATOMIC_SEQ_CST);
}

/* The bit of a slot of the page, 0 if it is another. */
static uint64_t vmprof_bit_(const struct vmprof_slot *slot)
{
	if (!vmprof_page_ || slot < vmprof_page_->slots || slot >= vmprof_page_->slots + VMPROF_SLOTS)
		return 0;
	return 1ull << (slot - vmprof_page_->slots);
}

/* In this order: whoever replaces the page between the two finds the request in the first. */
void vmprof_request(struct vmprof_slot *slot)
{
	__atomic_or_fetch(&vmprof_requested_, vmprof_bit_(slot), __ATOMIC_SEQ_CST);
	__atomic_or_fetch(&slot->armed, VMPROF_REQUESTED, __ATOMIC_SEQ_CST);
}

/* In this order: a request between the two is answered now, and once more. */
int vmprof_answer(struct vmprof_slot *slot)
{
	uint64_t bit = vmprof_bit_(slot);
	uint32_t armed = __atomic_fetch_and(&slot->armed, ~VMPROF_REQUESTED, __ATOMIC_SEQ_CST);

	return bit ? (__atomic_fetch_and(&vmprof_requested_, ~bit, __ATOMIC_SEQ_CST) & bit) != 0
		   : (armed & VMPROF_REQUESTED) != 0;
}

/* A multiple of the kernel's page size, which may be more than 4096 bytes on arm64. */
static size_t vmprof_span_(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return page > VMPROF_PAGE_SIZE ? page : VMPROF_PAGE_SIZE;
}

/* Maps zeroes over the page: holders of the old page can no longer arm this process. */
static void vmprof_unshare_(void)
{
	int slot;

	if (mmap(vmprof_page_, vmprof_span_(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    MAP_FAILED) {
		vmprof_renew_();
		return;
	}
	for (slot = 0; slot < VMPROF_SLOTS; slot++) /* no memory: the agent, if it is gone, arms nothing either */
		vmprof_disarm_(&vmprof_page_->slots[slot]);
}

static void vmprof_before_fork_(void) { pthread_mutex_lock(&vmprof_.lock); }
static void vmprof_after_fork_(void) { pthread_mutex_unlock(&vmprof_.lock); }

/* A child has the calling thread only. What it inherited of page and socket would act on its parent's behalf. */
static void vmprof_in_child_(void)
{
	vmprof_claimed_ = vmprof_bit_(vmprof_self);
	vmprof_requested_ &= vmprof_claimed_;
	vmprof_unshare_();
	vmprof_untime_();
	if (vmprof_.socket >= 0)
		close(vmprof_.socket);
	if (vmprof_.wake >= 0)
		close(vmprof_.wake);
	vmprof_.socket = vmprof_.wake = -1;
	vmprof_.started = 0;
	__atomic_store_n(&vmprof_.connected, 0, __ATOMIC_SEQ_CST);
	vmprof_unsend_();
	pthread_mutex_unlock(&vmprof_.lock);
}

static void vmprof_thread_gone_(void *slot)
{
	(void)slot;
	vmprof_thread_end();
}

static void vmprof_map_(void)
{
	void *page = mmap(NULL, vmprof_span_(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED || pthread_key_create(&vmprof_thread_key_, vmprof_thread_gone_) != 0 ||
	    pthread_atfork(vmprof_before_fork_, vmprof_after_fork_, vmprof_in_child_) != 0)
		return; /* no thread will get a slot */
	vmprof_page_ = (struct vmprof_page *)page;
}

/* noinline, so that compilers do not split it: its probe is in a function of this name. */
__attribute__((noinline)) struct vmprof_slot *vmprof_thread_begin(void)
{
	const uint64_t all = (1ull << VMPROF_SLOTS) - 1;
	uint64_t taken, vacant;

	if (vmprof_self != &vmprof_never_)
		return vmprof_self;
	pthread_once(&vmprof_once_, vmprof_map_);
	taken = __atomic_load_n(&vmprof_claimed_, __ATOMIC_SEQ_CST);
	do {
		vacant = ~taken & all;
		if (!vacant || !vmprof_page_) {
			__atomic_add_fetch(&vmprof_unslotted_, 1, __ATOMIC_RELAXED);
			return vmprof_self;
		}
	} while (!__atomic_compare_exchange_n(&vmprof_claimed_, &taken, taken | (vacant & -vacant), 0, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	vmprof_self = &vmprof_page_->slots[__builtin_ctzll(vacant)];
	vmprof_timers_[__builtin_ctzll(vacant)].epoch = 0;
	pthread_setspecific(vmprof_thread_key_, vmprof_self);
	vmprof_announce_(vmprof_self);
	return vmprof_self;
}

struct vmprof_slot *vmprof_thread_begin_with(struct vmprof_slot *own)
{
	struct vmprof_slot *slot = vmprof_thread_begin();

	return slot == &vmprof_never_ ? own : slot;
}

void vmprof_thread_end(void)
{
	struct vmprof_slot *slot = vmprof_self;

	if (slot == &vmprof_never_)
		return;
	vmprof_self = &vmprof_never_;
	pthread_setspecific(vmprof_thread_key_, NULL);
	VMPROF_PROBE1(thread_end, slot - vmprof_page_->slots); /* from here on the agent leaves it alone */
	slot->left = 0;
	__atomic_store_n(&slot->armed, 0, __ATOMIC_SEQ_CST);
	__atomic_and_fetch(&vmprof_requested_, ~vmprof_bit_(slot), __ATOMIC_SEQ_CST);
	__atomic_and_fetch(&vmprof_claimed_, ~(1ull << (slot - vmprof_page_->slots)), __ATOMIC_SEQ_CST);
}

unsigned vmprof_unslotted(void) { return __atomic_load_n(&vmprof_unslotted_, __ATOMIC_RELAXED); }

/*
 * Asks the threads that this agent does not know to announce themselves. Their check does that at their next call.
 * Returns the number of these threads.
 */
static int vmprof_ask_(void)
{
	uint64_t claimed = __atomic_load_n(&vmprof_claimed_, __ATOMIC_SEQ_CST);
	int slot, unknown = 0;

	for (slot = 0; slot < VMPROF_SLOTS; slot++) {
		if (!(claimed >> slot & 1) ||
		    __atomic_load_n(&vmprof_announced_[slot], __ATOMIC_SEQ_CST) == vmprof_connection_)
			continue;
		/* with none left: the agent fills the slots of threads that it knows, and of no others */
		__atomic_or_fetch(&vmprof_page_->slots[slot].armed, VMPROF_ARMED, __ATOMIC_RELAXED);
		unknown++;
	}
	return unknown;
}

/* ---- the helper thread ---- */

/* ms */
#define VMPROF_RETRY_ 1000	    /* until the next attempt to connect */
#define VMPROF_REFUSED_RETRY_ 10000 /* likewise, if the answer was no */
#define VMPROF_HANDSHAKE_ 5000	    /* for the agent to answer */
#define VMPROF_ASK_AGAIN_ 60000	    /* the longest between two attempts to make threads known */

/* Waits for timeout ms, for a wake-up, or for events on the socket; returns those. */
static int vmprof_wait_(int timeout, int events)
{
	struct pollfd fds[2] = {{vmprof_.wake, POLLIN, 0}, {vmprof_.socket, (short)events, 0}};
	uint64_t count;

	if (poll(fds, 2, timeout) <= 0)
		return 0;
	if (fds[0].revents && read(vmprof_.wake, &count, sizeof(count)) < 0)
		return 0; /* cannot be: it was readable */
	return fds[1].revents;
}

static int vmprof_stopping_(void) { return __atomic_load_n(&vmprof_.stop, __ATOMIC_SEQ_CST); }

/* Connects. Returns whether there is an agent; then vmprof_.socket is open. */
static int vmprof_dial_(void)
{
	const struct timeval patience = {VMPROF_HANDSHAKE_ / 1000, 0};

	pthread_mutex_lock(&vmprof_.lock); /* a child must not get a socket that it does not know of */
	vmprof_.socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_mutex_unlock(&vmprof_.lock);
	if (vmprof_.socket < 0)
		return 0;
	setsockopt(vmprof_.socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* of connect, too */
	return connect(vmprof_.socket, (struct sockaddr *)(void *)&vmprof_.address, sizeof(vmprof_.address)) == 0;
}

/* Receives a packet of the agent into size bytes, and the file descriptor that comes with it, -1 if none does. */
static ssize_t vmprof_receive_(void *packet, size_t size, int *fd)
{
	struct iovec io = {packet, size};
	union {
		struct cmsghdr header; /* aligned like this */
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message;
	struct cmsghdr *c;
	ssize_t got;

	*fd = -1;
	memset(&control, 0, sizeof(control));
	memset(&message, 0, sizeof(message));
	message.msg_iov = &io;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	got = recvmsg(vmprof_.socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (got < 0)
		return got;
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return got;
}

/* Says hello and maps the page of the agent's answer. Returns 0, or how many ms to wait before the next attempt. */
static int vmprof_greet_(void)
{
	struct vmprof_hello_ hello = {VMPROF_HELLO_, VMPROF_VERSION, {0}};
	struct vmprof_welcome_ welcome = {0, 0, 0, 0};
	void *page = MAP_FAILED;
	int fd;

	memcpy(hello.runtime, vmprof_.runtime, sizeof(hello.runtime));
	if (send(vmprof_.socket, &hello, sizeof(hello), MSG_NOSIGNAL) < 0 || !vmprof_wait_(VMPROF_HANDSHAKE_, POLLIN))
		return VMPROF_RETRY_;

	pthread_mutex_lock(&vmprof_.lock); /* a child must not get the descriptor */
	vmprof_receive_(&welcome, sizeof(welcome), &fd);
	if (fd >= 0 && welcome.type == VMPROF_WELCOME_ && welcome.version == VMPROF_VERSION &&
	    welcome.page_size == VMPROF_PAGE_SIZE && welcome.slots == VMPROF_SLOTS)
		page = mmap(vmprof_page_, vmprof_span_(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (page != MAP_FAILED) {
		vmprof_renew_();
		__atomic_add_fetch(&vmprof_connection_, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&vmprof_.connected, 1, __ATOMIC_SEQ_CST);
	}
	pthread_mutex_unlock(&vmprof_.lock);

	if (page != MAP_FAILED)
		return 0;
	if (welcome.type == 0 || (welcome.type == VMPROF_REFUSED_ && welcome.version >= VMPROF_REFUSED_SOON_))
		return VMPROF_RETRY_;
	return VMPROF_REFUSED_RETRY_;
}

/* Sends one packet. Returns the events to wait for if it does not fit, -1 if the connection has ended, else 0. */
static int vmprof_send_one_(struct vmprof_record_ *r)
{
	if (send(vmprof_.socket, r + 1, r->size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return 0;
	return errno == EAGAIN ? POLLIN | POLLOUT : -1;
}

/* Sends what is pending and fits; returns the events to wait for then, or -1 if the connection has ended. */
static int vmprof_send_(void)
{
	struct vmprof_record_ *r;
	int events = 0;

	pthread_mutex_lock(&vmprof_.lock);
	while ((r = vmprof_.pending.next) != &vmprof_.pending && (events = vmprof_send_one_(r)) == 0) {
		vmprof_unlink_(r);
		if (vmprof_packet_(r)->type == VMPROF_FORGET_) {
			free(r);
		} else {
			r->sent = 1;
			vmprof_append_(&vmprof_.sent, r);
		}
	}
	while (events == 0 && vmprof_timing() && (r = vmprof_.unnamed.next) != &vmprof_.unnamed &&
	       (events = vmprof_send_one_(r)) == 0) {
		vmprof_unlink_(r);
		vmprof_append_(&vmprof_.named, r);
	}
	pthread_mutex_unlock(&vmprof_.lock);
	return events == 0 ? POLLIN : events;
}

/* Takes a packet of the agent. Returns 0 if the connection has ended. */
static int vmprof_hear_(void)
{
	struct vmprof_offer_ offer;
	ssize_t got;
	int fd;

	memset(&offer, 0, sizeof(offer));
	pthread_mutex_lock(&vmprof_.lock); /* a child must not get the descriptor */
	got = vmprof_receive_(&offer, sizeof(offer), &fd);
	if (fd >= 0) {
		if (offer.type == VMPROF_TIMINGS_)
			vmprof_time_(&offer, fd);
		close(fd);
	}
	pthread_mutex_unlock(&vmprof_.lock);
	return got > 0;
}

/* Runs a connection until it ends or vmprof_stop is called. */
static void vmprof_serve_(void)
{
	int again = VMPROF_RETRY_;

	while (!vmprof_stopping_()) {
		int events = vmprof_send_(), happened;

		if (events < 0)
			return;
		happened = vmprof_wait_(vmprof_ask_() ? again : -1, events);
		if ((happened & POLLIN && !vmprof_hear_()) || happened & (POLLHUP | POLLERR | POLLNVAL))
			return;
		again = again < VMPROF_ASK_AGAIN_ ? 2 * again : again; /* a thread may not run for hours */
	}
}

/* Forgets the connection, if there was one. */
static void vmprof_hang_up_(void)
{
	if (vmprof_.connected)
		vmprof_unshare_();
	vmprof_untime_();
	pthread_mutex_lock(&vmprof_.lock);
	__atomic_store_n(&vmprof_.connected, 0, __ATOMIC_SEQ_CST);
	if (vmprof_.socket >= 0)
		close(vmprof_.socket);
	vmprof_.socket = -1;
	vmprof_unsend_();
	pthread_mutex_unlock(&vmprof_.lock);
}

static void *vmprof_helper_(void *unused)
{
	(void)unused;
	while (!vmprof_stopping_()) {
		int pause = vmprof_dial_() ? vmprof_greet_() : VMPROF_RETRY_;

		if (pause == 0) {
			vmprof_serve_();
			pause = VMPROF_RETRY_;
		}
		vmprof_hang_up_();
		if (!vmprof_stopping_())
			vmprof_wait_(pause, 0);
	}
	return NULL;
}

int vmprof_connected(void) { return __atomic_load_n(&vmprof_.connected, __ATOMIC_SEQ_CST); }

/* Called with the lock held. */
static int vmprof_launch_(void)
{
	sigset_t all, before;
	int failed;

	vmprof_.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (vmprof_.wake < 0)
		return errno;
	__atomic_store_n(&vmprof_.stop, 0, __ATOMIC_SEQ_CST);
	sigfillset(&all); /* the VM's signals are for the VM's threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&vmprof_.helper, NULL, vmprof_helper_, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		close(vmprof_.wake);
		vmprof_.wake = -1;
		return failed;
	}
	pthread_setname_np(vmprof_.helper, "vmprof");
	vmprof_.started = 1;
	return 0;
}

int vmprof_start(const char *runtime)
{
	const char *path = secure_getenv("VMPROF_SOCKET"); /* here, as other threads may change the environment later */
	int failed = 0;

	if (!path || !*path)
		path = VMPROF_SOCKET_PATH;
	if (strlen(path) >= sizeof(vmprof_.address.sun_path))
		return ENAMETOOLONG;
	pthread_once(&vmprof_once_, vmprof_map_);
	if (!vmprof_page_)
		return ENOMEM;
	pthread_mutex_lock(&vmprof_.lock);
	if (!vmprof_.started) {
		vmprof_.address.sun_family = AF_UNIX;
		strcpy(vmprof_.address.sun_path, path);
		memset(vmprof_.runtime, 0, sizeof(vmprof_.runtime));
		memcpy(vmprof_.runtime, runtime, strnlen(runtime, sizeof(vmprof_.runtime) - 1));
		failed = vmprof_launch_();
	}
	pthread_mutex_unlock(&vmprof_.lock);
	return failed;
}

void vmprof_stop(void)
{
	int started;

	pthread_mutex_lock(&vmprof_.lock);
	started = vmprof_.started;
	vmprof_.started = 0;
	if (started) {
		__atomic_store_n(&vmprof_.stop, 1, __ATOMIC_SEQ_CST);
		vmprof_wake_();
	}
	pthread_mutex_unlock(&vmprof_.lock);
	if (!started)
		return;
	pthread_join(vmprof_.helper, NULL);
	close(vmprof_.wake);
	vmprof_.wake = -1;
}

#ifdef __cplusplus
}
#endif
#endif /* VMPROF_IMPLEMENTATION */
