/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The usdt engine: ticks that ask for a window in a guest, and the probe that is attached
 * meanwhile. The uprobe programs can be preempted and move between CPUs: nothing is kept per CPU
 * across statements, and what is not inlined keeps its stack below 64 bytes (see codemap.bpf.c).
 */
#include "call/usdt.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum usdt_mode *export_usdt_mode __attribute__((unused));
enum usdt_dialect *export_usdt_dialect __attribute__((unused));
enum usdt_action *export_usdt_action __attribute__((unused));
struct usdt_notice *export_usdt_notice __attribute__((unused));

SEC("perf_event")
int usdt_tick(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = id >> 32;
	struct usdt_guest *g = bpf_map_lookup_elem(&usdt_guests, &pid); /* first: most ticks end here */

	if (!g || !chosen(pid) || g->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK)
		return 0;
	usdt_tick_guest(g, pid, begin);
	begin = bpf_ktime_get_ns() - begin;
	__sync_fetch_and_add(&g->tick_ns, begin);
	count(NS_CALLS, begin);
	return 0;
}

/*
 * A call of a function of PHP. Returns true if it is a sample. A function of its own, for the sake
 * of the stack.
 */
static __noinline bool usdt_php(struct usdt_guest *g, struct task_struct *task, const struct usdt_probe *probe,
				__u64 now)
{
	struct php_caller caller = {};
	__u64 frame = php_pointer(g->executing), func;

	func = php_entered(task, probe, frame);
	if (!func) {
		__sync_fetch_and_add(&g->mismatched, 1);
		return false;
	}
	php_caller_of(frame, &caller);
	if (g->mode == USDT_EXACT)
		usdt_count(g, task, probe, func, &caller);
	else
		usdt_sample(g, task, probe, &caller, now);
	return true;
}

/* A hit in a known process. Returns true if it is a sample. */
static __noinline bool usdt_hit(struct usdt_guest *g, struct task_struct *task, __u32 cookie, __u64 now)
{
	const struct php_caller unknown = {};
	const struct usdt_probe *probe;

	__sync_fetch_and_add(&g->hits, 1);
	if (g->mode != USDT_EXACT && !usdt_take(g, task, now))
		return false;
	probe = bpf_map_lookup_elem(&usdt_probes, &cookie);
	if (!probe)
		return false;
	if (probe->dialect == USDT_PHP)
		return usdt_php(g, task, probe, now);
	usdt_sample(g, task, probe, &unknown, now);
	return true;
}

SEC("uprobe")
int usdt_entry(void *ctx)
{
	__u64 begin = bpf_ktime_get_ns(), end;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct usdt_guest *g;
	__u64 switches;
	bool sample;

	count(CALL_HITS, 1);
	g = bpf_map_lookup_elem(&usdt_guests, &pid);
	if (!g || g->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK) {
		/* the guest has ended, or forked: a child shares the uprobe until it goes */
		count(CALL_HITS_REFUSED, 1);
		count(NS_CALLS, bpf_ktime_get_ns() - begin);
		return 0;
	}
	switches = switches_of(task);
	sample = usdt_hit(g, task, bpf_get_attach_cookie(ctx), begin);
	end = bpf_ktime_get_ns();
	if (g->tid == task->pid)
		usdt_leave(g, task, end);
	if (switches_of(task) != switches)
		return 0; /* preempted in here: the time is another thread's */
	__sync_fetch_and_add(&g->hit_ns, end - begin);
	if (sample)
		__sync_fetch_and_add(&g->sample_ns, end - begin);
	count(NS_CALLS, end - begin);
	return 0;
}
