/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watches on places where compiled code enters an object's monitor. Every hit is counted, the first
 * ones are recorded with the object's class; a few of those also become a record with the context.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there
 * (bpf_prog_active).
 */
#pragma once

#include "event/observe.bpf.h"
#include "kernel/registers.bpf.h"
#include "kernel/watch.bpf.h"

#define MAX_ENTER_HITS 64  /* that are recorded: longer watches of hot code show one phase only */
#define MAX_ENTER_WALKS 12 /* of a watch: two or three microseconds each */
#define WALK_MASK 7	   /* besides each site's first hit, one in eight is walked, at random */

/* Where a monitor is entered. */
struct enter_site {
	__s64 displacement; /* from the register to the object, bytes */
	__u32 reg;	    /* bytes into struct registers */
	__u32 walked;	    /* its first hit was */
};

struct enter_hit {
	__u64 time;
	__u64 klass; /* of the object, 0 if it could not be read */
	__u32 tid;
	__u32 ns; /* that the program took */
	__u32 site; /* index in watch.addresses */
	__u32 switches; /* of the thread until then, their low bits: between hits with the same it kept its CPU */
};

struct enter_watch {
	struct watch watch; /* at most MAX_ENTER_HITS have a place in hits[] */
	struct enter_site sites[WATCH_ADDRESSES];

	/* answers */
	__u32 walks; /* records that were begun */
	__u32 pad;
	struct enter_hit hits[MAX_ENTER_HITS]; /* as they came */
};

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHES);
	__type(key, __u32);
	__type(value, struct enter_watch);
} enter_watches SEC(".maps");

/* The object whose monitor is entered at a site. */
static __always_inline __u64 entered_object(struct task_struct *task, const struct enter_site *at)
{
	__u64 base = 0;
	__u32 reg = at->reg;

	if (reg > sizeof(struct registers) - sizeof(base) ||
	    bpf_probe_read_kernel(&base, sizeof(base), (void *)bpf_task_pt_regs(task) + reg))
		return 0;
	return base + at->displacement;
}

/*
 * The context of a hit becomes a record in the stream; values: the watch's number, the hit's index.
 */
static __always_inline void enter_walk(struct tick_context *ctx, struct task_struct *task, __u64 number, __u32 place)
{
	struct scratch *s = begin_observation(OBSERVED_MONITOR, 0, 1);

	if (!s)
		return;
	s->seen.o.count = 2;
	s->seen.o.values[0] = number;
	s->seen.o.values[1] = place;
	if (!read_registers(s, ctx, task, false))
		s->watch.bare = 1;
	write_observation(s, &events, BPF_RB_NO_WAKEUP);
}

/* Records a hit at a site, at which the program began then. */
static __always_inline void enter_take(struct tick_context *ctx, struct task_struct *task, struct enter_watch *e,
				       __u32 site, __u32 pid, __u64 begin)
{
	const struct hotspot_heap *h;
	struct enter_hit *hit;
	__u32 place;

	place = watch_claim(&e->watch);
	if (place >= e->watch.limit || place >= MAX_ENTER_HITS)
		return;
	hit = &e->hits[place];
	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	hit->time = begin;
	hit->klass = h ? klass_of(h, entered_object(task, &e->sites[site])) : 0;
	hit->tid = task->pid;
	hit->site = site;
	hit->switches = (__u32)switches_of(task);
	if (e->watch.deliver &&
	    (!__sync_fetch_and_or(&e->sites[site].walked, 1) || !(bpf_get_prandom_u32() & WALK_MASK)) &&
	    __sync_fetch_and_add(&e->walks, 1) < MAX_ENTER_WALKS)
		enter_walk(ctx, task, e->watch.number, place);
	watch_recorded(&e->watch, place);
	hit->ns = bpf_ktime_get_ns() - begin;
}

/* A thread is about to execute the instruction at a breakpoint. */
static __always_inline void enter_hit(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns(), pc;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32, site;
	struct enter_watch *e = bpf_map_lookup_elem(&enter_watches, &pid);

	if (!e)
		return;
#if defined(__TARGET_ARCH_x86)
	pc = ctx->regs.ip;
#elif defined(__TARGET_ARCH_arm64)
	pc = ctx->regs.pc;
#endif
	site = watch_address(&e->watch, task, pc);
	if (site < WATCH_ADDRESSES)
		enter_take(ctx, task, e, site, pid, begin);
	watch_account(&e->watch, begin);
}
