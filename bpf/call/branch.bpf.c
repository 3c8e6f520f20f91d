/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The branch engine: calls from the CPU's branch records, or every Nth call that it retires. */
#include "call/branch.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
struct branch_cost *export_branch_cost __attribute__((unused));
struct branch_rate *export_branch_rate __attribute__((unused));

/* A tick whose event has PERF_SAMPLE_BRANCH_STACK. */
SEC("perf_event")
int branch_stack(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct branch_cost *cost = branch_begin(bpf_get_current_pid_tgid() >> 32);
	struct branch_records *r;
	__u32 zero = 0;
	long bytes;

	if (!cost)
		return 0;
	r = bpf_map_lookup_elem(&branch_buffers, &zero);
	if (r) {
		bytes = bpf_read_branch_records((void *)ctx, r->entries, sizeof(r->entries), 0);
		if (bytes < 0) /* -ENOENT: the event has none */
			bytes = 0;
		branch_stack_sample(task, r, (__u32)bytes / sizeof(r->entries[0]), cost, begin);
	}
	branch_end(cost, begin);
	return 0;
}

/*
 * An event for every Nth retired call, so precise that the next instruction is the callee's first.
 */
SEC("perf_event")
int branch_retired(struct tick_context *ctx)
{
#if defined(__TARGET_ARCH_x86)
	__u64 begin = bpf_ktime_get_ns(), ra = 0;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct branch_cost *cost = branch_begin(bpf_get_current_pid_tgid() >> 32);

	if (!cost)
		return 0;
	bpf_probe_read_user(&ra, sizeof(ra), (void *)ctx->regs.sp);
	branch_retired_call(task, ctx->regs.ip, ra, ctx->sample_period, cost, begin);
	branch_end(cost, begin);
#endif
	return 0; /* no other architecture has such an event */
}
