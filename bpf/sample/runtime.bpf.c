/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The run time of threads, which the scheduler counts to the nanosecond. An iterator reads that of
 * all threads that exist, and a record has that of each one that has ended. The record is written
 * when the thread leaves its CPU for good, as only then its run time is complete. (The kernel frees
 * the thread much later: after a grace period, which takes seconds on a busy machine.)
 */
#include "wait/offcpustate.bpf.h"
#include "kernel/maps.bpf.h"
#include "record/runtime.h"
#include "kernel/tasks.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct thread_run *export_thread_run __attribute__((unused));
struct thread_end *export_thread_end __attribute__((unused));

#define MAX_ENDING 65536
#define MAX_ARRIVED 65536

/* One arrival in so many is measured, at random: arrivals of a thread may alternate. */
#define ARRIVALS_EACH 8

/*
 * Clocks of the scheduler and of bpf_ktime_get_ns differ by some 100 ppm: longer stretches on a CPU
 * would measure that.
 */
#define LONGEST_STRETCH 2000000 /* ns */

/*
 * A thread that sets a timer and waits leaves its CPU sooner: some 10 us on a virtual machine,
 * where the host sets it.
 */
#define LONGEST_SETTING 50000 /* ns */

/* key: thread of a chosen process that has begun to end and still runs */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ENDING);
	__type(key, __u32);
	__type(value, __u8);
} ending SEC(".maps");

struct arrived {
	__u64 times, early; /* thread_run.arrivals, thread_run.arriving */
};

/* key: thread of a chosen process that was measured */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ARRIVED);
	__type(key, __u32);
	__type(value, struct arrived);
} arrived SEC(".maps");

struct arrival {
	__u64 time, ran;
	__u64 set; /* when the thread last set the timer of the CPU; 0 if it has not, or another one came first */
	__u32 tid; /* 0: none is measured */
};

/* The measured arrival of the thread that is on the CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arrival);
} arrival SEC(".maps");

/* Threads of chosen processes that have begun to end, and those with a record. */
__u64 threads_ended = 0, threads_recorded = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___ending {
	int exit_state;
};

struct timerqueue_node {
	__s64 expires; /* ns, by the clock of the timer */
};

struct hrtimer_cpu_base {
	__s64 expires_next; /* ns, CLOCK_MONOTONIC: what the timer of the CPU is set to */
};

struct hrtimer_clock_base {
	struct hrtimer_cpu_base *cpu_base;
	__s64 offset; /* ns of its clock to CLOCK_MONOTONIC */
};

struct hrtimer {
	struct timerqueue_node node;
	struct hrtimer_clock_base *base;
};

#pragma clang attribute pop

SEC("iter/task")
int each_run_time(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *leader;
	struct thread_run r = {};
	struct arrived *a;

	if (!task || !chosen(task->tgid))
		return 0;
	r.tid = task->pid;
	if (((struct task_struct___ending *)task)->exit_state && !bpf_map_lookup_elem(&ending, &r.tid))
		return 0; /* has its record, and waits until its parent asks for its status */
	leader = task->group_leader;
	r.start = leader->start_boottime;
	r.born = task->start_boottime;
	r.ran = ran(task);
	r.switches = switches_of(task);
	r.pid = task->tgid;
	a = bpf_map_lookup_elem(&arrived, &r.tid);
	if (a) {
		r.arrivals = a->times;
		r.arriving = a->early;
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

/* A process that was chosen is no longer among the chosen ones when its last threads are freed. */
static __always_inline bool was_chosen(__u32 pid, __u64 start)
{
	__u64 *ended;

	if (chosen(pid))
		return true;
	ended = bpf_map_lookup_elem(&ended_pids, &pid);
	return ended && *ended == start;
}

/*
 * A thread that waits for a time sets the timer of its CPU if that time comes before all others. No
 * tick can see how long that takes: if one were due before the thread sleeps, it would be the
 * first, and the timer would stay as it is.
 */
SEC("tp_btf/hrtimer_start")
int BPF_PROG(timer_starts, struct hrtimer *timer)
{
	__u32 zero = 0;
	struct arrival *a = bpf_map_lookup_elem(&arrival, &zero);
	struct hrtimer_clock_base *base = timer->base;

	if (!a || !a->tid || a->tid != (__u32)bpf_get_current_pid_tgid())
		return 0;
	if (!bpf_core_field_exists(timer->node.expires) || !bpf_core_field_exists(base->cpu_base->expires_next))
		return 0;
	a->set = timer->node.expires - base->offset < base->cpu_base->expires_next ? bpf_ktime_get_ns() : 0;
	return 0;
}

/*
 * The scheduler's clock stands still from the wake-up of a thread until the thread comes to the
 * CPU, if that was idle: the rest of the timer's interrupt and the way out of idleness are the
 * thread's run time, though no tick can see it there. This is what it ran by the scheduler's clock
 * minus what it was on the CPU by another one. If it waits, what it took to set the timer is added.
 */
static __always_inline void measure_arrivals(struct task_struct *prev, struct task_struct *next, bool waits)
{
	__u32 zero = 0, tid = next->pid;
	struct arrival *a = bpf_map_lookup_elem(&arrival, &zero);
	struct arrived none = {}, *sum;
	__u64 charged, stretch, now, set;

	if (!a)
		return;
	if (a->tid && a->tid == (__u32)prev->pid) {
		now = bpf_ktime_get_ns();
		stretch = now - a->time;
		set = waits && a->set ? now - a->set : 0;
		charged = ran(prev) - a->ran;
		sum = bpf_map_lookup_elem(&arrived, &a->tid);
		if (!sum && !bpf_map_update_elem(&arrived, &a->tid, &none, BPF_NOEXIST))
			sum = bpf_map_lookup_elem(&arrived, &a->tid);
		if (sum && stretch <= LONGEST_STRETCH) {
			sum->times++;
			if (charged > stretch)
				sum->early += charged - stretch;
			if (set <= LONGEST_SETTING)
				sum->early += set;
		}
	}
	a->tid = 0;
	if (!tid || bpf_get_prandom_u32() % ARRIVALS_EACH || !chosen(next->tgid))
		return;
	a->tid = tid;
	a->set = 0;
	a->ran = ran(next);
	a->time = bpf_ktime_get_ns();
}

/* A thread leaves its CPU for good. */
static __always_inline void record_end(struct task_struct *task)
{
	struct thread_end e = {};
	struct arrived *a;

	fill_header(&e.header, task, EVENT_THREAD_END, bpf_ktime_get_ns());
	a = bpf_map_lookup_elem(&arrived, &e.header.tid);
	if (a) {
		e.arrivals = a->times;
		e.arriving = a->early;
		bpf_map_delete_elem(&arrived, &e.header.tid);
	}
	if (bpf_map_delete_elem(&ending, &e.header.tid))
		return; /* not of a chosen process */
	e.born = task->start_boottime;
	e.ran = ran(task);
	e.switches = switches_of(task);
	count(EVENTS_ATTEMPTED, 1);
	if (bpf_ringbuf_output(&events, &e, sizeof(e), BPF_RB_NO_WAKEUP))
		count(EVENTS_DROPPED_RING_FULL, 1);
	else
		count(EVENTS_DELIVERED, 1);
	__sync_fetch_and_add(&threads_recorded, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(thread_switches, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	measure_arrivals(prev, next, prev_state && !preempt);
	if (prev_state & TASK_DEAD)
		record_end(prev);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_ends, struct task_struct *task)
{
	__u32 tid = task->pid;
	__u8 one = 1;

	if (!was_chosen(task->tgid, task->group_leader->start_boottime))
		return 0;
	__sync_fetch_and_add(&threads_ended, 1);
	bpf_map_update_elem(&ending, &tid, &one, BPF_ANY);
	return 0;
}
