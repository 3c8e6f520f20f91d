/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Threads that are off the CPU: values of their waits and of who ended these, and what an iterator
 * says of each.
 */
#pragma once

#include <linux/types.h>

/* Values of OBSERVED_WAIT. */
enum wait_values {
	WAIT_SINCE,   /* when the thread left its CPU; header.time is when it came back */
	WAIT_DELAY,   /* ns at the end of the wait in which it was runnable and waited for a CPU */
	/*
	 * ns: a wait of that length and longer is always recorded, a shorter one with the
	 * probability length / WAIT_MEAN
	 */
	WAIT_MEAN,
	WAIT_PC,      /* the user's registers: threads that wait again with both the same wait at the same place */
	WAIT_SP,
	WAIT_WOKEN,   /* when the thread was woken, if wakers are recorded and that was seen; 0 otherwise */
	/*
	 * ns, with WAIT_WOKEN: the wait was recorded as it is longer, and so was its waker if
	 * WAIT_WOKEN - WAIT_SINCE is
	 */
	WAIT_LEAST,
	WAIT_VALUES,
};

/* Values of OBSERVED_WAKER. They identify the wait. */
enum waker_values {
	WAKER_TID,   /* of the thread that waited */
	WAKER_SINCE, /* its WAIT_SINCE */
	WAKER_VALUES,
};

/* Interrupts wake threads while another one is the current one: only the kernel's frames say so. */
enum waker_flags {
	WAKER_CHOSEN = 1 << 0, /* the current process is profiled: the user's frames are there */
	WAKER_KERNEL = 1 << 1, /* a thread of the kernel, or none: the CPU was idle */
};

/* Why a thread left its CPU. */
enum off_cpu_state {
	OFF_CPU_BLOCKED = 1, /* it waits until something happens, and a signal may interrupt that */
	OFF_CPU_DISK,	  /* the same, without signals: the kernel's state D */
	OFF_CPU_PREEMPTED,	  /* it could have run on */
	OFF_CPU_THROTTLED,	  /* the same, and its cgroup has used up its quota */
	OFF_CPU_STOPPED,	  /* by a signal or by a tracer */
};

/* A thread that is off the CPU, or on one: since is 0. */
struct off_cpu_thread {
	__u64 since; /* ns, CLOCK_MONOTONIC */
	__u64 on;    /* ns on a CPU since it was made known; while it is on one, until the last tick */
	__u64 born;  /* of the thread, ns, CLOCK_BOOTTIME: guards against a reused id */
	__u64 start; /* of its process, as in struct event_header */
	__u64 pc, sp; /* the user's registers */
	__u32 pid, tid, exec; /* as in struct event_header */
	__u32 state; /* enum off_cpu_state */
	__u32 every; /* waits that this one stands for */
	__u32 pad;
	__u8 comm[16];
};

#define MAX_FOLLOWED_THREADS 65536 /* threads */

#define MAX_WAIT_FRAMES 48 /* of the kernel, of a wait: most have 15 to 25 */
