/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whole invocations of a method: hardware breakpoints stand on the entry of its code and on its
 * return instructions for as long as a recording lasts. An invocation ends where the thread is
 * about to return with the stack pointer that it had at the entry. The outermost one of a thread
 * counts: what it calls of the same method is a part of it.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there
 * (bpf_prog_active).
 */
#include "call/timing/invocation.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
struct followed *export_followed __attribute__((unused));
struct invocation *export_invocation __attribute__((unused));
struct invocation_counts *export_invocation_counts __attribute__((unused));
struct open_invocation *export_open_invocation __attribute__((unused));
enum invocation_end *export_invocation_end __attribute__((unused));

/*
 * For how long the thread has been on a CPU since its breakpoints were set: their clock stands
 * still while it is not.
 */
static __always_inline __u64 on_cpu(void *ctx)
{
	struct bpf_perf_event_value v = {};

	return bpf_perf_prog_read_value(ctx, &v, sizeof(v)) ? 0 : v.running;
}

/* Returns 1 always: the kernel counts only such hits against the breakpoint's limit. */
SEC("perf_event")
int invocation_breakpoint(struct tick_context *ctx)
{
	__u64 now = bpf_ktime_get_ns();

#if defined(__TARGET_ARCH_x86)
	invocation_hit(ctx->regs.ip, ctx->regs.sp, on_cpu(ctx), now);
#elif defined(__TARGET_ARCH_arm64)
	invocation_hit(ctx->regs.pc, ctx->regs.sp, on_cpu(ctx), now);
#endif
	return 1;
}
