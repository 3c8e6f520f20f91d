/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Threads in invocations of a method that is followed: invocation.bpf.c notes them, and
 * offcpu.bpf.c reads them.
 */
#pragma once

#include "kernel/kernel.h"

#define MAX_OPEN_INVOCATIONS 4096 /* threads that have entered the method */

/* A thread's outermost invocation. */
struct open_invocation {
	__u64 born; /* of the thread, ns, CLOCK_BOOTTIME: thread ids are reused */
	__u64 time; /* when it was entered; 0: it has ended */
	__u64 sp;   /* at the entry */
	__u64 back; /* the return address, which lies there; 0 if that is not known */
	/*
	 * ns for which the thread had been on a CPU by then, by the clock of its breakpoints; 0 if
	 * that is not known
	 */
	__u64 ran;
	__u64 waited; /* ns for which it had waited for a CPU by then */
	__u32 pid;
	__u32 generation;
};

/* key: tid; user space removes threads that have ended */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OPEN_INVOCATIONS);
	__type(key, __u32);
	__type(value, struct open_invocation);
} open_invocations SEC(".maps");
