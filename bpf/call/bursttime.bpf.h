/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The CPU time of a burst, to the nanosecond as long as its thread stays on one CPU. */
#pragma once

#include "call/burstpage.bpf.h"

/* More of the kernel's task_struct. */
struct sched_entity___burst {
	__u64 exec_start;	/* when the next field was last brought up to date, ns of the CPU's scheduler clock */
	__u64 sum_exec_runtime; /* ns */
	__u64 nr_migrations;
} __attribute__((preserve_access_index));

struct task_struct___burst {
	struct sched_entity___burst se;
} __attribute__((preserve_access_index));

#define SCHED(task) (&((struct task_struct___burst *)(task))->se)

/*
 * The CPU time of the current task since its burst began, in ns. What is not in the scheduler's
 * account yet is the time since that was brought up to date, when the task got the CPU at the
 * latest. Its clock and CLOCK_MONOTONIC begin at different moments, but go alike, so that cancels
 * out. The clocks of two CPUs do not: for a task that has moved it is the account alone, which may
 * be wrong by one of the scheduler's ticks.
 */
static __always_inline __u64 burst_spent(struct task_struct *task, const struct burst_thread *t, __u64 now)
{
	__s64 spent = SCHED(task)->sum_exec_runtime - t->runtime;

	if (SCHED(task)->nr_migrations == t->migrations)
		spent += now - SCHED(task)->exec_start - t->since;
	return spent > 0 ? spent : 0;
}

/* Makes now the beginning of t's burst. */
static __always_inline void burst_mark(struct task_struct *task, struct burst_thread *t, __u64 now)
{
	t->runtime = SCHED(task)->sum_exec_runtime;
	t->since = now - SCHED(task)->exec_start;
	t->migrations = SCHED(task)->nr_migrations;
}
