/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The page engine: ticks that arm bursts in guests' pages, and the guests' probes that report the
 * calls. The uprobe programs can be preempted by another thread that hits one on the same CPU:
 * nothing is kept per CPU across statements, records are built in memory of the thread, and what is
 * not inlined keeps its stack below 64 bytes (see codemap.bpf.c).
 */
#include "call/burst.bpf.h"
#include "kernel/operand.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum burst_probe *export_burst_probe __attribute__((unused));
struct vmprof_page *export_vmprof_page __attribute__((unused));
struct vmprof_slot *export_vmprof_slot __attribute__((unused));
struct burst_site *export_burst_site __attribute__((unused));

/* key: the attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BURST_SITES);
	__type(key, __u32);
	__type(value, struct burst_site);
} burst_sites SEC(".maps");

SEC("perf_event")
int burst_arm(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns(), ns;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct burst_cost *cost;

	if (!bpf_map_lookup_elem(&page_guests, &pid))
		return 0;
	burst_tick(task, pid, bpf_get_prandom_u32(), begin);
	ns = bpf_ktime_get_ns() - begin;
	count(NS_CALLS, ns);
	cost = this_cost();
	if (cost) {
		__sync_fetch_and_add(&cost->ticks, 1);
		__sync_fetch_and_add(&cost->tick_ns, ns);
	}
	return 0;
}

SEC("uprobe")
int burst_hit(void *ctx)
{
	__u64 begin = bpf_ktime_get_ns();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32, key = bpf_get_attach_cookie(ctx);
	struct burst_site *site = bpf_map_lookup_elem(&burst_sites, &key);

	if (!site || site->pid != pid)
		return 0;
	switch (site->probe) {
	case BURST_CALL:
		burst_call(task, pid, begin, argument(task, &site->first), argument(task, &site->second));
		break;
	case BURST_THREAD:
		burst_thread_begin(task, pid, argument(task, &site->first));
		break;
	case BURST_THREAD_END:
		burst_thread_end(task);
		break;
	}
	count(NS_CALLS, bpf_ktime_get_ns() - begin);
	return 0;
}
