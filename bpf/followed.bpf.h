/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is noted of a thread: when it left its CPU, and how long it was on one. It is in the thread's task storage, which ends with it. Kernels
 * before 6.4 cannot allocate that with the lock of a run queue held, so threads get it when they are made, or from the iterator. Threads
 * without it cost a comparison.
 *
 * Only the programs at switches change the notes. The iterator runs at the same time, so it only makes them: of a thread that may be on a CPU or
 * not. Which of the two it was is known from whether it leaves or comes first.
 */
#pragma once

#include "away.bpf.h"
#include "maps.bpf.h"

/* With the kernel's pointer before it, it has one cache line. */
struct followed {
	__u32 recording; /* the one that this is of: others are over; 0: the thread has ended */
	__u32 state;	 /* enum away_state */
	__u64 since;	 /* when it left; 0 on a CPU. The thread was made known then if on < 0 */
	__s64 on;	 /* ns on the CPU since recording began; less the time when it came, or was made known, while it is on one: negative */
	__u64 delay;	 /* ns that it had waited on run queues in its life when it left */
	__u64 woken;	 /* with wakers: when this wait ended, 0 if it has not or that was not seen */
	__u64 least;	 /* ns, with woken: the wait is recorded if it is longer */
	__u64 mean;	 /* ns, with woken: the mean interval of which that was drawn */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct followed);
} followed_threads SEC(".maps");

/* The number of this recording, from 1. */
__u32 recording = 0;

/*
 * Threads that are followed in a recording, by the lowest bit of its number. A program that is late counts for its own: the one before is the only one
 * that may still have any.
 */
__u32 followed_counts[2] = {};

/* The thread's notes of this recording; 0 if it is not followed. */
static __always_inline struct followed *followed(struct task_struct *task)
{
	struct followed *f;

	if (!((struct task_struct___scheduled *)task)->bpf_storage)
		return 0;
	f = bpf_task_storage_get(&followed_threads, task, 0, 0);
	return f && f->recording == recording ? f : 0;
}

/* A thread that ends is counted until then, once. */
static __always_inline void unfollow(struct followed *f)
{
	__u32 of = __sync_lock_test_and_set(&f->recording, 0);

	if (of)
		__sync_fetch_and_add(&followed_counts[of & 1], -1);
}

/* Makes notes of a thread that there are none of: nothing is known of the time before. on_cpu is false if it certainly has no CPU. */
static __always_inline struct followed *follow(struct task_struct *task, __u32 state, bool on_cpu, __u64 since)
{
	struct followed fresh = {}, *f;
	__u32 now = recording;

	fresh.recording = now;
	fresh.state = state;
	fresh.since = since;
	fresh.on = on_cpu ? -since : 0;
	fresh.delay = run_delay(task);
	if (followed_counts[now & 1] < MAX_FOLLOWED_THREADS) {
		__sync_fetch_and_add(&followed_counts[now & 1], 1);
		f = bpf_task_storage_get(&followed_threads, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (f)
			return f;
		__sync_fetch_and_add(&followed_counts[now & 1], -1);
	}
	count(WAITS_REFUSED, 1);
	return 0;
}

/* The thread's notes. One that is not followed is from now on. */
static __always_inline struct followed *followed_from_now(struct task_struct *task, unsigned int state)
{
	struct followed *f = bpf_task_storage_get(&followed_threads, task, 0, 0);

	if (f && f->recording == recording)
		return f;
	if (f)
		bpf_task_storage_delete(&followed_threads, task);
	f = follow(task, state_of(task, !state, state), true, bpf_ktime_get_ns());
	if (f && (((struct task_struct___scheduled *)task)->__state & TASK_DEAD)) /* perhaps it had left for the last time before */
		unfollow(f);
	return f;
}

static __always_inline void thread_leaves(struct followed *f, struct task_struct *task, bool runnable, unsigned int state, __u64 now)
{
	if (state & TASK_DEAD) {
		unfollow(f);
		return;
	}
	f->state = state_of(task, runnable, state);
	f->delay = run_delay(task);
	if (f->on < 0)
		f->on += now;
	f->woken = 0;
	f->since = now;
}

/* Returns when the thread left, 0 if that was not seen. */
static __always_inline __u64 thread_comes(struct followed *f, __u64 now)
{
	__u64 since = f->since;

	f->since = 0;
	if (f->on >= 0)
		f->on -= now;
	else if (since) /* it was not on a CPU since it was made known */
		f->on = -now;
	return since;
}

/* When the thread left, 0 if it is on a CPU, and its time on one, as struct away has them. */
static __always_inline void where_is(struct followed *f, struct task_struct *task, struct away *a)
{
	a->since = f->since;
	a->on = f->on;
	if (!a->since || a->on >= 0)
		return;
	if (((struct task_struct___scheduled *)task)->on_cpu)
		a->since = 0;
	else
		a->on = 0;
}
