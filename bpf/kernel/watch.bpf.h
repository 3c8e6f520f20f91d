/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A watch: for some milliseconds hardware breakpoints stand on a few addresses of one process, in
 * some of its threads. User space writes the watch before it sets the breakpoints, reads it after
 * they are gone, and removes it. The kernel's own limit on each breakpoint's hits ends what user
 * space does not.
 *
 * Each object that includes this defines what a hit means: a struct that begins with struct watch,
 * and a hash map of those, by pid, of MAX_WATCHES.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there
 * (bpf_prog_active).
 */
#pragma once

#include "kernel/maps.bpf.h"

#define MAX_WATCHES 16	  /* processes that are watched at once */
#define WATCH_ADDRESSES 3 /* x86-64 has 4 debug registers, one is left to debuggers */

struct watch {
	__u64 number;	   /* never 0 */
	__u64 start_ticks; /* of the process, in 10 ms: guards against a reused pid */
	__u64 addresses[WATCH_ADDRESSES]; /* unused ones are 0 */
	__u32 limit;   /* hits of all addresses and threads until the watch ends */
	__u32 deliver; /* records go to the event stream, too */

	/* answers */
	__u64 runs;  /* of the program, also after the end */
	__u64 ns;    /* in it */
	__u32 claimed; /* hits until now, also those beyond the limit */
	__u32 pad;
};

/*
 * The numbers of watches that reached their limit: user space sleeps on it. The size is set at
 * load: a page.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} watch_ends SEC(".maps");

/*
 * The index of the address at which a thread of the watched process arrived; WATCH_ADDRESSES if the
 * watch has none there.
 */
static __always_inline __u32 watch_address(const struct watch *w, struct task_struct *task, __u64 pc)
{
	if (w->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK)
		return WATCH_ADDRESSES;
	for (__u32 i = 0; i < WATCH_ADDRESSES; i++) {
		if (w->addresses[i] == pc)
			return i;
	}
	return WATCH_ADDRESSES;
}

/*
 * The place of a hit among those of the watch. Nothing is to be recorded of those from the limit
 * on.
 */
static __always_inline __u32 watch_claim(struct watch *w)
{
	return __sync_fetch_and_add(&w->claimed, 1);
}

/* Tells user space if the hit at a place was the last one. To be called when it is recorded. */
static __always_inline void watch_recorded(const struct watch *w, __u32 place)
{
	__u64 number = w->number;

	/* If the ring is full, its reader does not run: the watch ends late, no more. */
	if (place + 1 == w->limit)
		bpf_ringbuf_output(&watch_ends, &number, sizeof(number), BPF_RB_FORCE_WAKEUP);
}

/* Accounts for a run of the program since begin, and returns how long it took, in ns. */
static __always_inline __u64 watch_account(struct watch *w, __u64 begin)
{
	__u64 ns = bpf_ktime_get_ns() - begin;

	__sync_fetch_and_add(&w->runs, 1);
	__sync_fetch_and_add(&w->ns, ns);
	return ns;
}
