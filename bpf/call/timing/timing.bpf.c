/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Timings of invocations: hardware breakpoints on the entry of a method's code and on return
 * addresses of its callers. And of rounds of a loop: hardware breakpoints on places in it.
 */
#include "call/timing/timing.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
struct timing_watch *export_timing_watch __attribute__((unused));
struct timed *export_timed __attribute__((unused));
enum timing_mode export_timing_mode __attribute__((unused));
enum timing_loss export_timing_loss __attribute__((unused));

/* Returns 1 always: the kernel counts only such hits against the breakpoint's limit. */
SEC("perf_event")
int timing_breakpoint(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct timing_hit hit = {.begin = begin};

#if defined(__TARGET_ARCH_x86)
	hit.pc = ctx->regs.ip;
	hit.sp = ctx->regs.sp;
#elif defined(__TARGET_ARCH_arm64)
	hit.pc = ctx->regs.pc;
	hit.sp = ctx->regs.sp;
	hit.link = ctx->regs.regs[30];
#endif
	timing_hit(task, bpf_get_current_pid_tgid() >> 32, &hit);
	return 1;
}
