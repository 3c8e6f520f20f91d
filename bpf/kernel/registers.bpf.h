/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The user's registers, where a perf event came: in user mode, or in the kernel on the user's
 * behalf.
 */
#pragma once

#include "kernel/scratch.bpf.h"

#include <bpf/bpf_tracing.h>

#if defined(__TARGET_ARCH_x86)
/*
 * Whether code of this segment is 64-bit code: __USER_CS, or FLAT_USER_CS64 of a paravirtual guest
 * of Xen, as user_64bit_mode has it.
 */
static __always_inline bool is_64bit_code(__u64 cs)
{
	cs &= 0xffff;
	return cs == 0x33 || cs == 0xe033;
}
#endif

/*
 * The user's registers into scratch.regs, from the tick's own or from where the kernel saved them.
 * False for 32-bit code.
 */
static __always_inline bool read_registers(struct scratch *s, struct tick_context *ctx, struct task_struct *task,
					   bool kernel)
{
	struct user_registers *out = &s->regs;
#if defined(__TARGET_ARCH_x86)
	__u64 cs;

	if (!kernel) {
		cs = ctx->regs.cs;
		out->pc = ctx->regs.ip;
		out->sp = ctx->regs.sp;
		out->bp = ctx->regs.bp;
		out->r13 = ctx->regs.r13;
		out->rbx = ctx->regs.bx;
		out->thread = ctx->regs.r15;
		out->goroutine = ctx->regs.r14;
		/* or the compiler makes one of both, and the verifier refuses that */
		asm volatile("%0 = %0" : "+r"(cs));
	} else {
		const struct registers *r = &s->saved;

		if (bpf_probe_read_kernel(&s->saved, sizeof(s->saved), (void *)bpf_task_pt_regs(task)))
			return false;
		cs = r->cs;
		out->pc = r->ip;
		out->sp = r->sp;
		out->bp = r->bp;
		out->r13 = r->r13;
		out->rbx = r->bx;
		out->thread = r->r15;
		out->goroutine = r->r14;
	}
	return is_64bit_code(cs);
#elif defined(__TARGET_ARCH_arm64)
	if (!kernel) {
		out->pc = ctx->regs.pc;
		out->sp = ctx->regs.sp;
		out->bp = ctx->regs.regs[29];
		out->thread = ctx->regs.regs[28];
		return !(ctx->regs.pstate & 0x10); /* PSR_MODE32_BIT */
	} else {
		const struct registers *r = &s->saved;

		if (bpf_probe_read_kernel(&s->saved, sizeof(s->saved), (void *)bpf_task_pt_regs(task)))
			return false;
		out->pc = r->pc;
		out->sp = r->sp;
		out->bp = r->regs[29];
		out->thread = r->regs[28];
		return !(r->pstate & 0x10);
	}
#endif
}

static __always_inline bool in_kernel(struct tick_context *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return !(ctx->regs.cs & 3);
#elif defined(__TARGET_ARCH_arm64)
	return (ctx->regs.pstate & 0xf) != 0; /* PSR_MODE_EL0t is 0 */
#endif
}
