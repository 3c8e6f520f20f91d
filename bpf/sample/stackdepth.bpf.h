/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Depths: the distance of frames from the base of their thread's stack. They distinguish
 * activations of a method without a walk, so they must not depend on where the stack was mapped.
 */
#pragma once

#include "kernel/kernel.h"

/* What depths of a thread that is no JavaThread are counted from. */
static __always_inline __u64 native_stack_base(struct task_struct *task)
{
	__u64 start = 0, base;

	if (task->pid == task->tgid) {
		bpf_probe_read_kernel(&start, sizeof(start), &task->mm->start_stack);
		base = start;
		asm volatile("" : "+r"(base)); /* or the compiler reads both at once, which the verifier refuses */
		return base;
	}
#if defined(__TARGET_ARCH_x86)
	return task->thread.fsbase; /* glibc and musl keep a thread's descriptor at the top of its stack */
#elif defined(__TARGET_ARCH_arm64)
	return task->thread.uw.tp_value;
#endif
}

/* How far a canonical frame address is below base; 0 if it is unknown, or makes no sense. */
static __always_inline __u32 depth_below(__u64 base, __u64 cfa)
{
	__u64 depth = base - cfa;

	return !cfa || depth >> 32 ? 0 : depth;
}
