/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Samples of branches as programs of their own, for tests only: the test plays the CPU. */
#include "call/branch.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct branch_request {
	__u64 records; /* address of them in the test's memory */
	__u64 pc, ra;
	__u32 count; /* of records */
	__u32 period;
};

struct branch_request *export_branch_request __attribute__((unused));
struct branch_cost *export_branch_cost __attribute__((unused));
struct branch_rate *export_branch_rate __attribute__((unused));

SEC("syscall")
int play_stack(struct branch_request *q)
{
	struct branch_cost *cost = branch_begin(bpf_get_current_pid_tgid() >> 32);
	__u32 zero = 0, n = q->count;
	struct branch_records *r = bpf_map_lookup_elem(&branch_buffers, &zero);

	if (!cost || !r)
		return -1;
	if (n > MAX_BRANCHES)
		n = MAX_BRANCHES;
	bpf_probe_read_user(r->entries, n * sizeof(r->entries[0]), (void *)q->records);
	branch_stack_sample((struct task_struct *)bpf_get_current_task_btf(), r, n, cost, bpf_ktime_get_ns());
	branch_end(cost, bpf_ktime_get_ns());
	return 0;
}

SEC("syscall")
int play_retired(struct branch_request *q)
{
	struct branch_cost *cost = branch_begin(bpf_get_current_pid_tgid() >> 32);

	if (!cost)
		return -1;
	branch_retired_call((struct task_struct *)bpf_get_current_task_btf(), q->pc, q->ra, q->period, cost,
			    bpf_ktime_get_ns());
	branch_end(cost, bpf_ktime_get_ns());
	return 0;
}
