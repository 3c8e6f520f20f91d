/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Why a thread is off the CPU, as the kernel's own structures have it. */
#pragma once

#include "kernel/kernel.h"
#include "record/offcpu.h"

/* include/linux/sched.h */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400
#define TASK_FROZEN 0x8000

#define JOBCTL_TRAP_FREEZE (1 << 23) /* include/linux/sched/jobctl.h: its control group is to be frozen, version 2 */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_info {
	unsigned long long run_delay; /* ns on run queues */
};

struct cfs_rq___throttled {
	int throttle_count; /* of this group and those around it */
};

struct sched_entity___group {
	struct cfs_rq___throttled *cfs_rq;
	__u64 sum_exec_runtime; /* ns; while the task runs, until the last tick */
};

struct task_struct___scheduled {
	unsigned int __state;
	__u8 on_cpu; /* an int before Linux 7.3: its lowest byte */
	void *bpf_storage; /* 0 if no program has any */
	struct sched_info sched_info;
	struct sched_entity___group se;
	unsigned long jobctl;
	/*
	 * it has arrived where the freezer of control groups, version 2, stops it; also while it
	 * waits in vfork
	 */
	unsigned int frozen : 1;
};

#pragma clang attribute pop

static __always_inline __u64 run_delay(struct task_struct *task)
{
	struct task_struct___scheduled *t = (void *)task;

	return bpf_core_field_exists(t->sched_info) ? t->sched_info.run_delay : 0;
}

/* ns that the task has had a CPU in its life. */
static __always_inline __u64 ran(struct task_struct *task)
{
	return ((struct task_struct___scheduled *)task)->se.sum_exec_runtime;
}

/* Whether the task's cgroup, or one around it, has used up its CPU quota on this CPU. */
static __always_inline bool throttled(struct task_struct *task)
{
	struct task_struct___scheduled *t = (void *)task;
	struct cfs_rq___throttled *cfs;

	if (!bpf_core_field_exists(t->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq___throttled, throttle_count))
		return false;
	cfs = t->se.cfs_rq;
	return cfs && cfs->throttle_count > 0;
}

/*
 * Whether the task waits to be thawed: with the state of any wait. That of version 1 has a state of
 * its own.
 */
static __always_inline bool frozen(struct task_struct *task)
{
	struct task_struct___scheduled *t = (void *)task;

	if (!(t->jobctl & JOBCTL_TRAP_FREEZE) || !bpf_core_field_exists(t->frozen))
		return false;
	return BPF_CORE_READ_BITFIELD_PROBED(t, frozen);
}

static __always_inline __u32 state_of(struct task_struct *task, bool runnable, unsigned int state)
{
	if (runnable)
		return throttled(task) ? OFF_CPU_THROTTLED : OFF_CPU_PREEMPTED;
	if ((state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN)) || frozen(task))
		return OFF_CPU_STOPPED;
	if ((state & TASK_UNINTERRUPTIBLE) && !(state & TASK_NOLOAD))
		return OFF_CPU_DISK;
	return OFF_CPU_BLOCKED;
}
