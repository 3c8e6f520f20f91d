/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The walker of the modes that record less than whole stacks, for tests only. */
#include "sample/context.bpf.h"
#include "walk/walk_test.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * As much of the stack as the mode wants, and its tail. Returns 0; r->len is the size of the
 * record.
 */
SEC("syscall")
int context(struct request *r)
{
	struct hotspot_process *vm;
	struct task_struct *task = fake_task(r);
	struct scratch *s = this_scratch();
	struct context *c = this_context();
	__u32 zero = 0, pid = r->pid, n;
	struct record *out = bpf_map_lookup_elem(&samples, &zero);
	__u64 begin;

	if (!task || !s || !c || !out)
		return -1;
	begin = bpf_ktime_get_ns();
	begin_sample(s, r);
	vm = bpf_map_lookup_elem(&processes, &pid);
	take_stack(s, vm, task, pid, r->tid);
	n = s->sample.user_frames;
	r->len = offsetof(struct sample, frames) + 8 * n + append_tail(s, c, n, 0);
	end_context(s, c, r->lost);
	r->ns = bpf_ktime_get_ns() - begin;
	return bpf_probe_read_kernel(out, sizeof(*out), &s->sample);
}
