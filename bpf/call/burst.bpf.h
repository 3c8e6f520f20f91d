/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Bursts of sampled calls in guests that count for themselves (Arnold & Grove, CGO 2005, section 4,
 * figure 3). A tick arms the thread that it interrupts, in a page that the kernel and the guest
 * share; the thread then counts its calls down and runs over a probe at every STRIDE-th, SAMPLES
 * times.
 *
 * The page may be written by its guest at any time. What is read from it decides about nothing but
 * that guest's own next burst; who owns a slot, and how many calls it may still report, is kept
 * where guests cannot write.
 */
#pragma once

#include "call/bursttime.bpf.h"

/* The current process as a guest, or 0. */
static __always_inline struct burst_guest *current_guest(struct task_struct *task, __u32 pid)
{
	struct burst_guest *g = bpf_map_lookup_elem(&page_guests, &pid);

	if (!g || g->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK)
		return 0;
	return g;
}

/* The current thread, if it owns a slot of this guest's page. */
static __always_inline struct burst_thread *slot_owner(struct task_struct *task, const struct burst_guest *g)
{
	struct burst_thread *t = bpf_task_storage_get(&burst_threads, task, 0, 0);

	if (!t || t->serial != g->serial || t->exec != (__u32)task->group_leader->self_exec_id)
		return 0;
	return t;
}

/* Begins a burst of the thread that owns the slot. Returns false if the last one is not over. */
static __always_inline bool burst_begin(volatile struct vmprof_slot *s, struct burst_thread *t,
					const struct burst_rate *rate, __u32 random)
{
	__u32 stride = rate->stride, samples = rate->samples, skip;

	if (s->armed & SLOT_ARMED) {
		if (t->ticks < 1u << 31)
			t->ticks++;
		return false;
	}
	if (rate->calibrate && t->burst % rate->calibrate == 0)
		stride = 1;
	if (!stride)
		stride = 1;
	skip = 1 + random % stride; /* in [1..STRIDE]: every call of the window has the same chance */
	t->burst++;
	t->stride = stride;
	t->credit = samples;
	t->made = skip;
	t->ticks = 1;
	s->stride = stride;
	s->skip = skip;
	s->left = samples;
	s->burst = (__u32)t->burst;
	/*
	 * Last. The thread that reads it stands still here, but others of the process set bits of
	 * their own in it.
	 */
	__sync_fetch_and_or(&s->armed, SLOT_ARMED);
	return true;
}

/* What a tick does to the thread that it interrupts. */
static __always_inline void burst_tick(struct task_struct *task, __u32 pid, __u32 random, __u64 now)
{
	struct burst_guest *g = current_guest(task, pid);
	struct burst_thread *t = g ? slot_owner(task, g) : 0;
	struct vmprof_page *page = 0;
	struct burst_rate *rate;
	__u32 zero = 0, slot;
	void *map;

	if (!t)
		return;
	rate = bpf_map_lookup_elem(&burst_rates, &zero);
	if (!rate || !rate->samples)
		return;
	map = bpf_map_lookup_elem(&pages, &pid);
	if (map)
		page = bpf_map_lookup_elem(map, &zero);
	slot = t->slot;
	if (!page || slot >= PAGE_SLOTS)
		return;
	if (!burst_begin(&page->slots[slot], t, rate, random)) {
		count(BURSTS_SKIPPED, 1);
		return;
	}
	burst_mark(task, t, now);
	count(BURSTS_ARMED, 1);
}

/* vmprof:thread: from now on ticks of the current thread arm that slot, and of no other does. */
static __always_inline void burst_thread_begin(struct task_struct *task, __u32 pid, __u64 slot)
{
	struct burst_guest *g = current_guest(task, pid);
	struct burst_thread *t;

	if (!g || slot >= PAGE_SLOTS)
		return;
	t = bpf_task_storage_get(&burst_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return; /* out of memory: this thread is not sampled */
	t->serial = 0; /* a tick in between finds no owner */
	barrier();
	t->slot = slot;
	t->exec = (__u32)task->group_leader->self_exec_id;
	t->credit = 0;
	barrier();
	t->serial = g->serial;
}

static __always_inline void burst_thread_end(struct task_struct *task)
{
	struct burst_thread *t = bpf_task_storage_get(&burst_threads, task, 0, 0);

	if (t)
		t->serial = 0;
}

/* Whether the current thread may report one more call: only what was armed. */
static __always_inline struct burst_thread *burst_take(struct task_struct *task, __u32 pid)
{
	struct burst_guest *g = current_guest(task, pid);
	struct burst_thread *t = g ? slot_owner(task, g) : 0;

	if (!t || !t->credit)
		return 0;
	t->credit--;
	return t;
}

/*
 * vmprof:call. The guest's stub has counted: every execution is a sample, if there is credit for
 * it.
 */
static __always_inline void burst_call(struct task_struct *task, __u32 pid, __u64 now, __u64 callee, __u64 caller)
{
	struct burst_thread *t = burst_take(task, pid);
	struct burst_cost *cost;
	struct call *c;
	__u32 made;

	count(CALL_HITS, 1);
	if (!t) {
		count(CALL_HITS_REFUSED, 1);
		return;
	}
	cost = this_cost();
	if (cost) {
		__sync_fetch_and_add(&cost->hits, 1);
		__sync_fetch_and_add(&cost->skipped, t->stride - 1);
	}
	made = t->made;
	t->made += t->stride;
	count(CALLS_ATTEMPTED, 1);
	c = &t->call;
	fill_header(&c->header, task, EVENT_CALL, now);
	c->callee = callee;
	c->caller = caller;
	c->burst = t->burst;
	c->class_epoch = 0;
	c->attachment = t->serial;
	c->engine = ENGINE_PAGE;
	c->pad[0] = c->pad[1] = c->pad[2] = 0;
	c->callee_depth = c->caller_depth = 0;
	c->stride = t->stride;
	c->made = made;
	c->ticks = t->ticks;
	c->spent = burst_spent(task, t, now);
	if (bpf_ringbuf_output(&events, c, sizeof(*c), BPF_RB_NO_WAKEUP))
		count(CALLS_DROPPED_RING_FULL, 1);
	else
		count(CALLS_DELIVERED, 1);
}
