/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The listener engine: hardware breakpoints on the entry points of methods. */
#include "call/listener.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
struct listener_watch *export_listener_watch __attribute__((unused));
struct watch *export_watch __attribute__((unused));
struct listener_hit *export_listener_hit __attribute__((unused));

/* Returns 1 always: the kernel counts only such hits against the breakpoint's limit. */
SEC("perf_event")
int listener_breakpoint(struct tick_context *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct entry_registers r = {};

#if defined(__TARGET_ARCH_x86)
	r.pc = ctx->regs.ip;
	r.ra = read_word(ctx->regs.sp);
	r.sp = ctx->regs.sp + 8;
	r.bp = ctx->regs.bp;
	r.thread = ctx->regs.r15;
#elif defined(__TARGET_ARCH_arm64)
	r.pc = ctx->regs.pc;
	r.ra = ctx->regs.regs[30];
	r.sp = ctx->regs.sp;
	r.bp = ctx->regs.regs[29];
#endif
	listener_hit(task, bpf_get_current_pid_tgid() >> 32, &r);
	return 1;
}
