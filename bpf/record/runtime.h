/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How long threads have run, as the scheduler counts it. */
#pragma once

#include "record/event.h"

/*
 * What the iterator says of a thread. {pid, start} is its process, {tid, born} the thread: ids are
 * reused.
 */
struct thread_run {
	__u64 start; /* of its process, as in struct event_header */
	__u64 born;  /* ns, CLOCK_BOOTTIME */
	__u64 ran;   /* ns on a CPU in its life; while it is on one, until the last tick */
	__u64 switches; /* times that it has left a CPU */
	__u64 arrivals; /* of the times that it came to a CPU, those that were measured */
	/*
	 * ns of its run time that no tick can see, of those: before it came, as the scheduler
	 * counts from its wake-up on if the CPU was idle, and while it set the timer of the CPU to
	 * wait.
	 */
	__u64 arriving;
	__u32 pid, tid;
};

/* A thread has ended, and will not run again: the thread of the header. */
struct thread_end {
	struct event_header header;
	__u64 born, ran, switches, arrivals, arriving; /* as in struct thread_run */
};
