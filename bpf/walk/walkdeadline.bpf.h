/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How long one walk may take. What a walk reads was written by its target, which decides how many
 * frames there are, where each of them lies, and whether it can be read. In a tick interrupts are
 * off meanwhile, and where a thread is switched or woken a lock is held.
 */
#pragma once

#include "kernel/scratch.bpf.h"

#define CLOCK_STEPS 32 /* frames, or words that are searched or looked up, from one look at the clock to the next */

/* ns; set at load */
const volatile __u64 walk_ns = 150000;

__noinline int begin_time(void)
{
	struct scratch *s = this_scratch();

	if (!s)
		return 0;
	s->start.late = 0;
	s->start.unclocked = 0;
#ifdef PREEMPTIBLE
	s->start.switches = switches_of((struct task_struct *)bpf_get_current_task_btf());
#endif
	s->start.looked = bpf_ktime_get_ns();
	s->start.deadline = s->start.looked + walk_ns;
	return 0;
}

/*
 * Looks at the clock: whether the walks of this sample have taken their time. A virtual machine's
 * CPU may stand still for longer than a walk takes. That is not the walk's doing, and to end it
 * then would save nothing: between two looks, no more than half of its time counts.
 */
__noinline int out_of_time(void)
{
	struct scratch *s = this_scratch();
	__u64 now, passed;
#ifdef PREEMPTIBLE
	__u64 switches;
#endif

	if (!s)
		return 1;
	s->start.unclocked = 0;
	now = bpf_ktime_get_ns();
	passed = now - s->start.looked;
	s->start.looked = now;
	if (passed > walk_ns / 2)
		s->start.deadline += passed - walk_ns / 2;
	if (s->start.late || now < s->start.deadline)
		return s->start.late;
#ifdef PREEMPTIBLE
	switches = switches_of((struct task_struct *)bpf_get_current_task_btf());
	if (switches != s->start.switches) { /* only what the thread takes of a CPU counts */
		s->start.switches = switches;
		s->start.deadline = now + walk_ns;
		return 0;
	}
#endif
	s->start.late = 1;
	return 1;
}

/* The same after each frame: most do not look at the clock. */
static __always_inline bool late(struct scratch *s)
{
	return ++s->start.unclocked >= CLOCK_STEPS && out_of_time();
}
