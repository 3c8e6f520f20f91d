/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The time profile: a tick of every CPU's sampling event becomes one sample; processes come and go.
 */
#include "record/call.h"
#include "sample/sample.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum event_kind *export_event_kind __attribute__((unused));
enum walk_end *export_walk_end __attribute__((unused));
enum frame_kind *export_frame_kind __attribute__((unused));
enum sample_flags *export_sample_flags __attribute__((unused));
enum counter *export_counter __attribute__((unused));
enum hotspot_flags *export_hotspot_flags __attribute__((unused));
enum cpython_flags *export_cpython_flags __attribute__((unused));
struct cpython_process *export_cpython_process __attribute__((unused));
struct process_event *export_process_event __attribute__((unused));
enum suffix_tags *export_suffix_tags __attribute__((unused));
struct short_sample *export_short_sample __attribute__((unused));
struct known_thread *export_known_thread __attribute__((unused));
struct known_thread_key *export_known_thread_key __attribute__((unused));
enum call_engine *export_call_engine __attribute__((unused));
struct call *export_call __attribute__((unused));
struct named_call *export_named_call __attribute__((unused));
struct unwind_want *export_unwind_want __attribute__((unused));
enum rule_kind *export_rule_kind __attribute__((unused));
enum rule_saved *export_rule_saved __attribute__((unused));

SEC("perf_event")
int tick(struct tick_context *ctx)
{
	sample_event(ctx);
	return 0;
}

/* A child has the memory of its parent, and so its tables. */
static __always_inline void inherit_tables(__u32 from, __u32 to)
{
	const struct unwound_process *p = bpf_map_lookup_elem(&unwound, &from);

	if (p && bpf_map_update_elem(&unwound, &to, p, BPF_ANY))
		count(UNWIND_REFUSED, 1);
}

static __always_inline void forget_tables(__u32 pid)
{
	bpf_map_delete_elem(&unwound, &pid);
	bpf_map_delete_elem(&unwind_wanted, &pid);
}

static __always_inline void process_event(struct task_struct *task, __u8 kind, __u64 wakeup)
{
	struct process_event e = {};

	count(EVENTS_ATTEMPTED, 1);
	fill_header(&e.header, task, kind, bpf_ktime_get_ns());
	bpf_probe_read_kernel(e.comm, sizeof(e.comm), task->comm);
	if (bpf_ringbuf_output(&events, &e, sizeof(e), wakeup))
		count(EVENTS_DROPPED_RING_FULL, 1);
	else
		count(EVENTS_DELIVERED, 1);
}

/*
 * Children of a chosen process are chosen, and have the unwind tables of their parent until they
 * execute another program.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, to = child->tgid;
	__u8 one = 1;

	if (from != to)
		inherit_tables(from, to);
	if (filter_by_pid && from != to && bpf_map_lookup_elem(&pids, &from) &&
	    bpf_map_update_elem(&pids, &to, &one, BPF_ANY))
		count(PROCESSES_REFUSED, 1);
	return 0;
}

/*
 * User space leaves records in the ring for longer the longer no program was executed. One that is
 * executed then may have ended before it looks: so it is woken.
 */
#define CALM_NS (2 * 1000000000ULL)

static __u64 last_exec_ns;

static __always_inline __u64 exec_wakeup_flags(void)
{
	__u64 now = bpf_ktime_get_ns(), since = now - last_exec_ns;

	last_exec_ns = now;
	return since > CALM_NS ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/*
 * A VM is no longer the one that user space attached to once its process executes another program,
 * or ends.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	__u32 pid = task->tgid;

	bpf_map_delete_elem(&processes, &pid);
	forget_tables(pid);
	if (chosen(pid))
		process_event(task, EVENT_PROCESS_EXEC, exec_wakeup_flags());
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 pid = task->tgid;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);

	if (vm && (vm->flags & HOTSPOT_THREADS))
		forget_java_thread(pid, task);
	if (task->signal->live.counter > 0)
		return 0;
	bpf_map_delete_elem(&processes, &pid);
	forget_tables(pid);
	if (!chosen(pid))
		return 0;
	process_event(task, EVENT_PROCESS_EXIT, BPF_RB_NO_WAKEUP);
	if (filter_by_pid) {
		__u64 start = task->group_leader->start_boottime;

		bpf_map_update_elem(&ended_pids, &pid, &start, BPF_ANY);
		bpf_map_delete_elem(&pids, &pid);
	}
	return 0;
}
