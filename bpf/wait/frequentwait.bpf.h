/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * To follow threads that switch often may take more than the budget, though hardly any of their
 * waits is recorded. Of these, one wait in so many is followed, which is drawn when it begins and
 * stands for the others: so sums stay right on average, however long a wait is. The rest take no
 * look at the thread's notes: whether a thread switches often is in a table.
 *
 * User space says how many when waits take too much, and then begins a new rotation a few times a
 * second. In each, the first waits of a thread are all followed: one that has waited often before
 * may wait for long now.
 */
#pragma once

#include "wait/waitsampling.bpf.h"
#include "wait/taskstorage.bpf.h"

/* Of the waits of threads that switch often, one in so many is followed; 1: all. */
__u32 follow_every = 1;

/* Never 0. */
__u16 rotation = 1;

/* a power of two; threads with one slot in common displace each other in the next rotation */
#define FREQUENT_WAITERS (1 << 14)
#define FREQUENT_WAITS 20	  /* of a thread in a rotation: those after are not all followed */

/* A thread that switches often in this rotation. */
struct frequent_waiter {
	__u32 tid;
	__u16 rotation; /* in another one the slot is free */
	__u8 every;
	__u8 noted; /* the wait that it is in is followed */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FREQUENT_WAITERS);
	__type(key, __u32);
	__type(value, struct frequent_waiter);
} frequent_waiters SEC(".maps");

static __always_inline struct frequent_waiter *frequent_waiter_slot(__u32 tid)
{
	__u32 at = tid & (FREQUENT_WAITERS - 1);

	return bpf_map_lookup_elem(&frequent_waiters, &at);
}

/* The slot of a thread that switches often, 0 if it does not. */
static __always_inline struct frequent_waiter *frequent_waiter(__u32 tid)
{
	struct frequent_waiter *h;

	if (follow_every <= 1 || !tid)
		return 0;
	h = frequent_waiter_slot(tid);
	return h && h->tid == tid && h->rotation == rotation ? h : 0;
}

/* How many waits the one stands for that begins now; 0 if it is passed over. */
static __always_inline __u16 frequent_waiter_leaves(struct frequent_waiter *h)
{
	__u32 every = h->every;

	h->noted = (__u64)bpf_get_prandom_u32() * every >> 32 == 0;
	return h->noted ? every : 0;
}

/* A wait of a thread that was followed is over. */
static __always_inline void count_wait(struct followed *f, __u32 tid)
{
	struct frequent_waiter *h;

	if (follow_every <= 1)
		return;
	if (f->rotation != rotation) {
		f->rotation = rotation;
		f->waits = 0;
	}
	if (++f->waits != FREQUENT_WAITS)
		return;
	h = frequent_waiter_slot(tid);
	if (!h || h->rotation == rotation)
		return; /* another thread's */
	h->tid = tid;
	h->every = follow_every;
	h->noted = 0;
	h->rotation = rotation;
}
