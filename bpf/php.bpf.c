//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The semaphore engine: ticks that have a guest's semaphore set, and the probe behind it. The uprobe programs can be
 * preempted and move between CPUs: nothing is kept per CPU across statements, and what is not inlined keeps its stack
 * below 64 bytes (see codemap.bpf.c).
 */
#include "php.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum php_mode *export_php_mode __attribute__((unused));
enum php_action *export_php_action __attribute__((unused));
struct php_notice *export_php_notice __attribute__((unused));

/* The current process as a guest, or 0. */
static __always_inline struct php_guest *php_current(__u32 pid, __u64 start_ticks)
{
	struct php_guest *g = bpf_map_lookup_elem(&php_guests, &pid);

	return g && g->start_ticks == start_ticks ? g : 0;
}

SEC("perf_event")
int php_tick(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = id >> 32;
	struct php_guest *g = bpf_map_lookup_elem(&php_guests, &pid); /* first: most ticks end here */

	if (!g || !chosen(pid) || g->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK)
		return 0;
	php_tick_guest(g, pid, (__u32)id, begin);
	begin = bpf_ktime_get_ns() - begin;
	__sync_fetch_and_add(&g->tick_ns, begin);
	count(NS_CALLS, begin);
	return 0;
}

/* php:function__entry in a known process. */
static __noinline void php_hit(struct php_guest *g, struct task_struct *task, __u32 cookie, __u64 now)
{
	const struct php_probe *probe;
	struct php_caller caller = {};
	__u64 frame, func;

	__sync_fetch_and_add(&g->hits, 1);
	if (g->mode != PHP_EXACT) {
		if (!g->left || g->tid != task->pid) {
			php_refuse(g, task->tgid);
			return;
		}
		php_gap(g, task, now);
		if (!php_take(g, task->tgid))
			return;
	}
	probe = bpf_map_lookup_elem(&php_probes, &cookie);
	if (!probe)
		return;
	frame = php_pointer(g->executing);
	func = php_entered(task, probe, frame);
	if (!func) {
		__sync_fetch_and_add(&g->mismatched, 1);
		return;
	}
	php_caller_of(frame, &caller);
	if (g->mode == PHP_EXACT)
		php_count(g, task, probe, func, &caller);
	else
		php_sample(g, task, probe, &caller, now);
}

static __always_inline int php_function_entry(__u64 cookie)
{
	__u64 begin = bpf_ktime_get_ns(), start_ticks, end;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct php_guest *g;

	count(CALL_HITS, 1);
	start_ticks = task->group_leader->start_boottime / NS_PER_START_TICK;
	g = php_current(pid, start_ticks);
	if (g)
		php_hit(g, task, cookie, begin);
	else
		php_stray(pid, start_ticks, begin);
	end = bpf_ktime_get_ns();
	if (g) {
		__sync_fetch_and_add(&g->hit_ns, end - begin);
		php_leave(g, task, end);
	}
	count(NS_CALLS, end - begin);
	return 0;
}

SEC("uprobe.multi")
int php_function_entry_multi(void *ctx)
{
	return php_function_entry(bpf_get_attach_cookie(ctx));
}

/* The same for kernels without uprobe.multi (before 6.6). */
SEC("uprobe")
int php_function_entry_single(void *ctx)
{
	return php_function_entry(bpf_get_attach_cookie(ctx));
}
