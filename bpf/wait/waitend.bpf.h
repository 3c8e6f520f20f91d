/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A wait becomes a record: it is drawn when its thread comes to a CPU, and recorded when the thread
 * is the current one.
 */
#pragma once

#include "wait/currentstack.bpf.h"
#include "wait/waitsampling.bpf.h"
#include "wait/taskstorage.bpf.h"
#include "call/timing/openinvocation.bpf.h"
#include "kernel/registers.bpf.h"

/* A wait that was drawn for a record, by a thread that is about to go on on this CPU. */
struct drawn_wait {
	__u32 tid;   /* 0: there is none */
	__u32 state; /* as in struct followed, and so are the others */
	__u64 since, until;
	__u64 mean, least; /* as WAIT_MEAN, WAIT_LEAST */
	__u64 delay, woken;
	__u32 every;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drawn_wait);
} drawn_waits SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs___user {
	unsigned long ip, sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs___user {
	__u64 pc, sp;
};
#endif

#pragma clang attribute pop

static __always_inline __u64 user_pc(struct pt_regs___user *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->ip;
#elif defined(__TARGET_ARCH_arm64)
	return regs->pc;
#endif
}

static __always_inline __u64 max_of(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* The program runs with interrupts off: nothing else on this CPU counts the same. */
static __always_inline void count_switch(__u32 which)
{
	__u64 *v = bpf_map_lookup_elem(&counters, &which);

	if (v)
		++*v;
}

/* What a wait that was drawn stands for, ns. */
static __always_inline __u64 worth_of(struct drawn_wait *w)
{
	return max_of(w->until - w->since, w->mean) * w->every;
}

/* The thread did not go on where the other program sees it. */
static __always_inline void lose_wait(struct drawn_wait *w)
{
	w->tid = 0;
	count(NS_WAITS_DRAWN, worth_of(w));
	count(NS_WAITS_LOST, worth_of(w));
	count(OBSERVATIONS_ATTEMPTED, 1);
	count(OBSERVATIONS_DROPPED_BUSY, 1);
}

/*
 * T of threads in an invocation that is followed, ns; 0: as that of others. What a slow invocation
 * waited for is what users ask, so T does not rise as far as for other threads. It does rise, so
 * that what records take stays within what user space allows.
 */
__u64 open_invocation_interval = 0;

#define OPEN_INVOCATION_PART 8 /* of T at least */

/* T of a thread. */
static __always_inline __u64 mean_of(struct task_struct *task)
{
	__u64 mean = mean_interval, least = open_invocation_interval;
	__u32 tid = task->pid;
	struct open_invocation *in;

	if (!least || mean <= least)
		return mean;
	in = bpf_map_lookup_elem(&open_invocations, &tid);
	if (!in || !in->time || in->born != task->start_boottime)
		return mean;
	return max_of(least, mean / OPEN_INVOCATION_PART);
}

/* A thread is about to go on after a wait since that time: draws whether that is recorded. */
static __always_inline void draw_return(struct followed *f, struct task_struct *task, __u64 since, __u64 now)
{
	__u64 mean, woken = f->woken, least = 0;
	struct drawn_wait *w;
	__u32 zero = 0;
	bool recorded;

	w = bpf_map_lookup_elem(&drawn_waits, &zero);
	if (!w)
		return;
	count_switch(WAITS_SEEN);
	if (woken) {
		mean = f->mean;
		least = least_of(f->draw, mean);
	} else {
		mean = mean_of(task);
	}
	recorded = woken ? now - since > least : draw_wait(now - since, mean);
	if (!recorded) {
		count_switch(WAITS_THINNED);
		return;
	}
	pay_record(now);
	if (w->tid)
		lose_wait(w);
	w->tid = task->pid;
	w->mean = mean;
	w->since = since;
	w->until = now;
	w->delay = f->delay;
	w->woken = woken;
	w->least = least;
	w->every = f->every;
	w->state = f->state;
}

/* A thread has come to this CPU, and is the current one. */
static __always_inline void note_return(void *ctx)
{
	__u32 zero = 0;
	struct drawn_wait *w = bpf_map_lookup_elem(&drawn_waits, &zero);
	struct pt_regs___user *regs;
	struct task_struct *task;
	struct scratch *s;

	if (!w || !w->tid)
		return;
	task = (struct task_struct *)bpf_get_current_task_btf();
	if (w->tid != task->pid) {
		lose_wait(w);
		return;
	}
	w->tid = 0;
	count(NS_WAITS_DRAWN, worth_of(w));
	s = begin_observation(OBSERVED_WAIT, PROBE_WAIT, w->every);
	if (!s) {
		count(NS_WAITS_LOST, worth_of(w));
		return;
	}
	regs = (void *)bpf_task_pt_regs(task);
	s->seen.o.flags = w->state;
	s->seen.o.count = WAIT_VALUES;
	s->seen.o.values[WAIT_SINCE] = w->since;
	s->seen.o.values[WAIT_DELAY] = run_delay(task) - w->delay;
	s->seen.o.values[WAIT_MEAN] = w->mean;
	s->seen.o.values[WAIT_PC] = user_pc(regs);
	s->seen.o.values[WAIT_SP] = regs->sp;
	s->seen.o.values[WAIT_WOKEN] = w->woken;
	s->seen.o.values[WAIT_LEAST] = w->least;
	if (only_in_kernel(task) || !read_registers(s, 0, task, true))
		s->watch.bare = 1;
	if (!write_stack(s, ctx, w->until, MAX_WAIT_FRAMES, 0))
		count(NS_WAITS_LOST, worth_of(w));
}
