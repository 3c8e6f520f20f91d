/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Windows on monitor enters: for some milliseconds hardware breakpoints stand on places where compiled code enters an
 * object's monitor. Every hit is counted, the first ones with the object's class; a few of those also become a record with
 * the context. User space writes the window before it sets the breakpoints and reads it after they are gone.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there (bpf_prog_active).
 */
#pragma once

#include "observe.bpf.h"
#include "registers.bpf.h"

#define WINDOW_SITES 3	   /* x86-64 has 4 debug registers, one is left to debuggers */
#define MAX_ENTER_HITS 64  /* that are taken down: longer windows of hot code tell of one phase only */
#define MAX_ENTER_WALKS 12 /* of a window: two or three microseconds each */
#define WALK_MASK 7	   /* besides each site's first hit, one in eight is walked, by lot */

/* Where a monitor is entered. */
struct enter_site {
	__u64 address;	    /* where the breakpoint stands; 0 if the site is not used */
	__s64 displacement; /* from the register to the object, bytes */
	__u32 reg;	    /* bytes into struct registers */
	__u32 pad;
};

struct enter_hit {
	__u64 time;
	__u64 klass; /* of the object, 0 if it could not be read */
	__u32 tid;
	__u32 ns; /* that the program took */
	__u32 site; /* index in enter_window.sites */
	__u32 switches; /* of the thread until then, their low bits: between hits with the same it kept its CPU */
};

/* Only one is open at a time. */
struct enter_window {
	__u64 number;	   /* never 0 while it is open */
	__u64 start_ticks; /* of the process, in 10 ms: guards against a reused pid */
	__u32 pid;
	__u32 limit; /* hits of all sites until it ends, 1..MAX_ENTER_HITS */
	struct enter_site sites[WINDOW_SITES];

	/* answers */
	__u64 counts[WINDOW_SITES]; /* hits, also those beyond the limit */
	__u64 runs;		    /* of the program */
	__u64 strays;		    /* of those, where and when the window has no site */
	__u64 ns;		    /* in it */
	__u32 claimed;		    /* hits until now; those beyond the limit have no place in hits[] */
	__u32 walks;		    /* records that were begun */
	struct enter_hit hits[MAX_ENTER_HITS]; /* as they came */
};

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct enter_window);
} enter_windows SEC(".maps");

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

/* The index of the site at pc, WINDOW_SITES if there is none. */
static __always_inline __u32 enter_site_at(const struct enter_window *w, __u64 pc)
{
	for (__u32 i = 0; i < WINDOW_SITES; i++) {
		if (w->sites[i].address == pc)
			return i;
	}
	return WINDOW_SITES;
}

/* The context of a hit becomes a record in the stream; values: the window's number, the hit's index. */
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

/* Takes down a hit, at which the program began then. False if it is not one of the window. */
static __always_inline bool enter_take(struct tick_context *ctx, struct enter_window *w, __u64 pc, __u64 begin)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32, site, place;
	const struct hotspot_heap *h;
	struct enter_hit *hit;
	bool first, walked;

	if (w->pid != pid || w->start_ticks != task->group_leader->start_boottime / NS_PER_START_TICK)
		return false;
	site = enter_site_at(w, pc);
	if (site >= WINDOW_SITES)
		return false;
	first = !__sync_fetch_and_add(&w->counts[site], 1);
	place = __sync_fetch_and_add(&w->claimed, 1);
	if (place >= w->limit || place >= MAX_ENTER_HITS)
		return true;
	hit = &w->hits[place];
	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	hit->time = begin;
	hit->klass = h ? klass_of(h, entered_object(task, &w->sites[site])) : 0;
	hit->tid = task->pid;
	hit->site = site;
	hit->switches = (__u32)switches_of(task);
	walked = first || !(bpf_get_prandom_u32() & WALK_MASK);
	if (walked && __sync_fetch_and_add(&w->walks, 1) < MAX_ENTER_WALKS)
		enter_walk(ctx, task, w->number, place);
	if (place + 1 == w->limit) /* user space sleeps on it; if the stream is full, the window ends late, no more */
		bpf_ringbuf_output(&events, &w->number, sizeof(w->number), BPF_RB_FORCE_WAKEUP);
	hit->ns = bpf_ktime_get_ns() - begin;
	return true;
}

/* A thread is about to execute the instruction at a breakpoint. */
static __always_inline void enter_hit(struct tick_context *ctx)
{
	__u64 begin = bpf_ktime_get_ns(), pc;
	__u32 key = 0;
	struct enter_window *w = bpf_map_lookup_elem(&enter_windows, &key);

	if (!w)
		return;
#if defined(__TARGET_ARCH_x86)
	pc = ctx->regs.ip;
#elif defined(__TARGET_ARCH_arm64)
	pc = ctx->regs.pc;
#endif
	if (!enter_take(ctx, w, pc, begin))
		__sync_fetch_and_add(&w->strays, 1);
	__sync_fetch_and_add(&w->runs, 1);
	__sync_fetch_and_add(&w->ns, bpf_ktime_get_ns() - begin);
}
