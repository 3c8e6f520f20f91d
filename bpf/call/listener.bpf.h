/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watches on the entry points of methods: every call that arrives there is recorded with its
 * caller.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there
 * (bpf_prog_active).
 */
#pragma once

#include "record/call.h"
#include "call/callsite.bpf.h"
#include "sample/stackdepth.bpf.h"
#include "kernel/watch.bpf.h"

#define MAX_LISTENER_HITS 256 /* of a watch, a power of two; at 1-10 us a hit that is all that a few ms hold; 14 KB */

/* One call that arrived. */
struct listener_hit {
	__u64 time;
	__u64 callee, caller; /* frames */
	__u32 tid;
	__u32 entry; /* index in watch.addresses */
	__u32 callee_depth, caller_depth; /* as in struct sample */
};

struct listener_watch {
	struct watch watch; /* its number is struct call's burst; at most MAX_LISTENER_HITS have a place in hits[] */
	struct listener_hit hits[MAX_LISTENER_HITS]; /* as they came */
};

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHES);
	__type(key, __u32);
	__type(value, struct listener_watch);
} listener_watches SEC(".maps");

static __always_inline void listener_deliver(struct task_struct *task, __u64 number,
					     const struct listener_hit *h, __u32 class_epoch, __u32 attachment)
{
	struct call *c;

	count(CALLS_ATTEMPTED, 1);
	c = bpf_ringbuf_reserve(&events, sizeof(*c), 0);
	if (!c) {
		count(CALLS_DROPPED_RING_FULL, 1);
		return;
	}
	fill_header(&c->header, task, EVENT_CALL, h->time);
	c->callee = h->callee;
	c->caller = h->caller;
	c->burst = number;
	c->class_epoch = class_epoch;
	c->attachment = attachment;
	c->engine = ENGINE_LISTENER;
	c->pad[0] = c->pad[1] = c->pad[2] = 0;
	c->stride = c->made = c->ticks = 0; /* calls of other methods came between */
	c->spent = 0;
	c->callee_depth = h->callee_depth;
	c->caller_depth = h->caller_depth;
	bpf_ringbuf_submit(c, BPF_RB_NO_WAKEUP);
	count(CALLS_DELIVERED, 1);
}

/* What depths of a thread are counted from. */
static __always_inline __u64 thread_base(const struct hotspot_process *vm, __u64 thread, struct task_struct *task)
{
	if (vm && (vm->flags & (HOTSPOT_TLS | HOTSPOT_THREADS)) && read_word(thread) == vm->java_thread_vtable)
		return read_word(thread + vm->thread_stack_base);
	return native_stack_base(task);
}

/*
 * A thread of a process is about to execute the first instruction of a method that is listened to.
 */
static __always_inline void listener_take(struct task_struct *task, struct listener_watch *l, __u32 pid, __u32 entry,
					  const struct entry_registers *r, __u64 now)
{
	struct watch *w = &l->watch;
	struct hotspot_process *vm;
	struct listener_hit *h;
	struct call_places at = {};
	struct epochs *e = 0;
	__u32 place, slot;
	__u64 base;

	place = watch_claim(w);
	if (place >= w->limit || place >= MAX_LISTENER_HITS) {
		count(CALL_HITS_REFUSED, 1);
		return;
	}
	vm = bpf_map_lookup_elem(&processes, &pid);
	if (vm && vm->start_ticks != w->start_ticks)
		vm = 0;
	h = &l->hits[place];
	h->time = now;
	h->callee = callee_frame(vm, r);
	h->caller = caller_frame(vm, r, &at);
	base = thread_base(vm, r->thread, task);
	h->callee_depth = depth_below(base, at.callee);
	h->caller_depth = depth_below(base, at.caller);
	h->tid = task->pid;
	h->entry = entry;
	watch_recorded(w, place);
	if (!w->deliver)
		return;
	if (vm) {
		slot = vm->slot;
		e = bpf_map_lookup_elem(&epochs, &slot);
	}
	listener_deliver(task, w->number, h, e ? e->classes : 0, vm ? vm->serial : 0);
}

static __always_inline void listener_hit(struct task_struct *task, __u32 pid, const struct entry_registers *r)
{
	__u64 begin = bpf_ktime_get_ns();
	struct listener_watch *l = bpf_map_lookup_elem(&listener_watches, &pid);
	__u32 entry = l ? watch_address(&l->watch, task, r->pc) : WATCH_ADDRESSES;

	count(CALL_HITS, 1);
	if (!l || entry >= WATCH_ADDRESSES) { /* the watch is over, its breakpoints are about to be */
		count(CALL_HITS_REFUSED, 1);
		count(NS_CALLS, bpf_ktime_get_ns() - begin);
		return;
	}
	listener_take(task, l, pid, entry, r, begin);
	count(NS_CALLS, watch_account(&l->watch, begin));
}
