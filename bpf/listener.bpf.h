/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Windows: for some milliseconds hardware breakpoints stand on the entry points of a few methods of one process, in all
 * of its threads, and every call that arrives there is taken down with its caller. User space opens a window before it
 * sets the breakpoints, and takes it away after they are gone; the kernel's own limit on each breakpoint's hits ends
 * what user space does not.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there (bpf_prog_active).
 */
#pragma once

#include "callsite.bpf.h"
#include "depth.bpf.h"
#include "maps.bpf.h"

#define MAX_WINDOWS 16	   /* processes listened to at once; 8 KB each */
#define WINDOW_ENTRIES 3   /* x86-64 has 4 debug registers, one is left to debuggers */
#define MAX_WINDOW_HITS 256 /* a power of two; at 1-10 us a hit that is all that a few ms hold */

/* One call that arrived. */
struct listener_hit {
	__u64 time;
	__u64 callee, caller; /* frames */
	__u32 tid;
	__u32 entry; /* index in listener_window.entries */
	__u32 callee_depth, caller_depth; /* as in struct sample */
};

struct listener_window {
	__u64 number;	   /* never 0; struct call's burst */
	__u64 start_ticks; /* of the process, in 10 ms: guards against a reused pid */
	__u64 entries[WINDOW_ENTRIES]; /* addresses; unused ones are 0 */
	__u32 limit;   /* hits of all entries and threads until it ends, 1..MAX_WINDOW_HITS */
	__u32 deliver; /* to the event stream, too */

	/* answers */
	__u64 runs;  /* of the program, also after the end */
	__u64 ns;    /* in it */
	__u32 claimed; /* hits until now; those beyond the limit have no place in hits[] */
	__u32 pad;
	struct listener_hit hits[MAX_WINDOW_HITS]; /* as they came */
};

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WINDOWS);
	__type(key, __u32);
	__type(value, struct listener_window);
} listener_windows SEC(".maps");

/* The numbers of windows that reached their limit: user space sleeps on it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} listener_ends SEC(".maps");

static __always_inline void listener_end(__u64 number)
{
	/* If it is full, its reader does not run: the window ends late, no more. */
	bpf_ringbuf_output(&listener_ends, &number, sizeof(number), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void listener_deliver(struct task_struct *task, const struct listener_window *w,
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
	c->burst = w->number;
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

/* The window that a hit of the current process at pc belongs to, and the entry's index; 0 if there is none. */
static __always_inline struct listener_window *listener_window_at(struct task_struct *task, __u32 pid, __u64 pc,
								  __u32 *entry)
{
	struct listener_window *w = bpf_map_lookup_elem(&listener_windows, &pid);

	if (!w || w->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK)
		return 0;
	for (__u32 i = 0; i < WINDOW_ENTRIES; i++) {
		if (w->entries[i] == pc) {
			*entry = i;
			return w;
		}
	}
	return 0;
}

/* A thread of a process is about to execute the first instruction of a method that is listened to. */
static __always_inline void listener_take(struct task_struct *task, struct listener_window *w, __u32 pid, __u32 entry,
					  const struct entry_registers *r, __u64 now)
{
	struct hotspot_process *vm;
	struct listener_hit *h;
	struct call_places at = {};
	struct epochs *e = 0;
	__u32 place, slot;
	__u64 base;

	place = __sync_fetch_and_add(&w->claimed, 1);
	if (place >= w->limit || place >= MAX_WINDOW_HITS) {
		count(CALL_HITS_REFUSED, 1);
		return;
	}
	vm = bpf_map_lookup_elem(&processes, &pid);
	if (vm && vm->start_ticks != w->start_ticks)
		vm = 0;
	h = &w->hits[place];
	h->time = now;
	h->callee = callee_frame(vm, r);
	h->caller = caller_frame(vm, r, &at);
	base = thread_base(vm, r->thread, task);
	h->callee_depth = depth_below(base, at.callee);
	h->caller_depth = depth_below(base, at.caller);
	h->tid = task->pid;
	h->entry = entry;
	if (place + 1 == w->limit)
		listener_end(w->number);
	if (!w->deliver)
		return;
	if (vm) {
		slot = vm->slot;
		e = bpf_map_lookup_elem(&epochs, &slot);
	}
	listener_deliver(task, w, h, e ? e->classes : 0, vm ? vm->serial : 0);
}

static __always_inline void listener_hit(struct task_struct *task, __u32 pid, const struct entry_registers *r)
{
	__u64 begin = bpf_ktime_get_ns(), ns;
	struct listener_window *w;
	__u32 entry = 0;

	count(CALL_HITS, 1);
	w = listener_window_at(task, pid, r->pc, &entry);
	if (!w) { /* the window is over, its breakpoints are about to be */
		count(CALL_HITS_REFUSED, 1);
		count(NS_CALLS, bpf_ktime_get_ns() - begin);
		return;
	}
	listener_take(task, w, pid, entry, r, begin);
	ns = bpf_ktime_get_ns() - begin;
	count(NS_CALLS, ns);
	__sync_fetch_and_add(&w->runs, 1);
	__sync_fetch_and_add(&w->ns, ns);
}
