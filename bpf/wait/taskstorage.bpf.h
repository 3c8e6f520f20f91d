/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is noted of a thread: when it left its CPU, and how long it was on one. It is in the
 * thread's task storage, which ends with it. Kernels before 6.4 cannot allocate that with the lock
 * of a run queue held, so threads get it when they are made, or from the iterator. Threads without
 * it cost a comparison.
 *
 * Only the programs at switches change the notes. The iterator runs at the same time, so it only
 * makes them: of a thread that may be on a CPU or not. Which of the two it was is known from
 * whether it leaves or comes first.
 */
#pragma once

#include "wait/offcpustate.bpf.h"
#include "kernel/maps.bpf.h"

/* With the kernel's pointer before it, it has one cache line. */
struct followed {
	__u32 recording; /* the one that this is of: others are over; 0: the thread has ended */
	__u8 state;	 /* enum off_cpu_state */
	__u8 unseen;	 /* 1 until it leaves or comes: whether it had a CPU when it was made known is not known */
	__u16 rotation;	 /* as in struct frequent_waiter: in which waits were counted last */
	/*
	 * when it left; with unseen, when it was made known; 0 on a CPU, or if this wait is passed
	 * over
	 */
	__u64 since;
	__u64 ran;	 /* ns that it had been on a CPU in its life when it was made known */
	__u64 delay;	 /* ns that it had waited on run queues in its life when it left */
	__u64 woken;	 /* with wakers: when this wait ended, 0 if it has not or that was not seen */
	__u64 mean;	 /* ns, with woken: the mean interval of which it was drawn whether to record this wait */
	__u32 draw;	 /* with woken: the draw */
	__u16 every;	 /* waits that this one stands for */
	__u16 waits;	 /* followed in this rotation */
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
 * Threads that are followed in a recording, by the lowest bit of its number. A program that is late
 * counts for its own: the one before is the only one that may still have any.
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

/*
 * Nothing is known of the time before. The thread may have been off the CPU for some time; since is
 * now, or 0 if it has not run yet.
 */
static __always_inline void note_from_now(struct followed *f, struct task_struct *task, __u32 state, __u64 since)
{
	f->state = state;
	f->since = since;
	f->unseen = since != 0;
	f->rotation = f->waits = 0;
	f->ran = ran(task);
	f->delay = run_delay(task);
	f->woken = 0;
	f->every = 1;
}

/* Whether there is room for another thread. */
static __always_inline bool may_follow(void)
{
	if (followed_counts[recording & 1] < MAX_FOLLOWED_THREADS)
		return true;
	count(WAITS_REFUSED, 1);
	return false;
}

/*
 * Notes are of no recording until they are whole. Several programs may come so far; one of them
 * counts the thread.
 */
static __always_inline void begin_following(struct followed *f)
{
	__u32 now = recording;

	if (!__sync_val_compare_and_swap(&f->recording, 0, now))
		__sync_fetch_and_add(&followed_counts[now & 1], 1);
}

/* Makes notes of a thread that there are none of. */
static __always_inline struct followed *follow(struct task_struct *task, __u32 state, __u64 since)
{
	struct followed fresh = {}, *f;

	if (!may_follow())
		return 0;
	note_from_now(&fresh, task, state, since);
	f = bpf_task_storage_get(&followed_threads, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (f)
		begin_following(f);
	else
		count(WAITS_REFUSED, 1);
	return f;
}

/* The thread's notes. One that is not followed is from now on. */
static __always_inline struct followed *followed_from_now(struct task_struct *task, unsigned int state)
{
	struct followed *f = bpf_task_storage_get(&followed_threads, task, 0, 0);
	__u32 of = f ? f->recording : 0, off_cpu = state_of(task, !state, state);

	if (!f) {
		f = follow(task, off_cpu, bpf_ktime_get_ns());
	} else if (of == recording) {
		return f;
	} else { /* another recording's, unless another iterator is about to change that, or the thread has ended */
		if (!of || !may_follow() || __sync_val_compare_and_swap(&f->recording, of, 0) != of)
			return 0;
		note_from_now(f, task, off_cpu, bpf_ktime_get_ns());
		begin_following(f);
	}
	/* perhaps it had left for the last time before */
	if (f && (((struct task_struct___scheduled *)task)->__state & TASK_DEAD))
		unfollow(f);
	return f;
}

/* This wait stands for so many. */
static __always_inline void thread_leaves(struct followed *f, struct task_struct *task, bool runnable,
					  unsigned int state, __u64 now, __u16 every)
{
	if (state & TASK_DEAD) {
		unfollow(f);
		return;
	}
	f->state = state_of(task, runnable, state);
	f->delay = run_delay(task);
	f->unseen = 0;
	f->woken = 0;
	f->every = every;
	f->since = now;
}

/* Returns when the thread left, 0 if that was not seen. */
static __always_inline __u64 thread_comes(struct followed *f)
{
	__u64 since = f->since;

	f->since = 0;
	f->unseen = 0;
	return since;
}

/* Whether the notes of a thread that has a CPU say when it left: it was not seen to do so. */
static __always_inline bool has_cpu(struct followed *f, struct task_struct *task)
{
	return f->unseen && ((struct task_struct___scheduled *)task)->on_cpu;
}
