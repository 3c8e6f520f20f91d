/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The time profile without an interrupt of its own: the kernel's own timer tick, which does its
 * accounting, becomes a sample, as a sampling event's does. It has no registers of its own: the
 * user's are where the kernel saved them, and the kernel's place is what the timer interrupt
 * returns to.
 */
#pragma once

#include "sample/sample.bpf.h"
#include "sample/thinning.bpf.h"

#define MAX_HANDLER_FRAMES 64 /* from this program to the entry of the interrupt: 10 to 16 */
#define MAX_ENTRIES 8

/*
 * Where code is that the CPU enters at a timer interrupt: begin and end in turn; 0 and 0 for none.
 */
const volatile __u64 interrupt_entries[2 * MAX_ENTRIES] = {};

/* A tick becomes a sample with this probability, in 1/2^32. User space changes it. */
__u64 sampled_share = WHOLE;

/*
 * key: whether ticks are of a process that is sampled. Those of others are counted at the same
 * share, and apart: the samples in a time are as many as the CPU time is, whatever the others did
 * meanwhile.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct stratum);
} strata SEC(".maps");

#define MAX_CPUS 8192 /* the kernel's own bound */

/* A bit for each CPU that has another clock. */
const volatile __u64 other_clock[MAX_CPUS / 64] = {};

/* Whether samples are wanted now. User space sets it. */
bool sampling = false;

/* Whether a tick came since the program was attached. */
bool ticked = false;

struct entry_search {
	struct scratch *s;
	__u64 skip;   /* frames up to the entry, with it; 0 if it was not found */
	__u64 frames; /* that there are */
};

/* bpf_loop callback: whether frame i is at the entry. */
static long find_entry(__u64 i, struct entry_search *e)
{
	__u64 pc;

	asm volatile("" : "+r"(i)); /* what is compared is what is used */
	if (i >= e->frames || i >= MAX_HANDLER_FRAMES)
		return 1;
	pc = e->s->words[i];
	for (int n = 0; n < MAX_ENTRIES; n++) {
		if (pc > interrupt_entries[2 * n] && pc <= interrupt_entries[2 * n + 1]) {
			e->skip = i + 1;
			return 1;
		}
	}
	return 0;
}

/* Appends the kernel's frames that the interrupt came on, if there are any. */
static __always_inline void sample_interrupted(struct scratch *s, void *ctx)
{
	struct entry_search e = {.s = s};
	long bytes = bpf_get_stack(ctx, s->words, MAX_HANDLER_FRAMES * 8, 0);

	if (bytes <= 0)
		return;
	e.frames = bytes / 8;
	bpf_loop(MAX_HANDLER_FRAMES, find_entry, &e, 0);
	if (e.skip && e.skip < e.frames)
		sample_kernel(s, ctx, e.skip);
}

/* Draws a tick of the current task, or not. */
static __always_inline bool drawn(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 sampled = (__u32)id && chosen(id >> 32);
	struct stratum *s = bpf_map_lookup_elem(&strata, &sampled);

	return s && draw_tick(s, sampled_share, bpf_get_prandom_u32());
}

/*
 * A tick becomes a sample. The kernel has frames unless the tick came in user mode, as far as the
 * caller knows.
 */
static __always_inline void take_tick(void *ctx, bool user_tick)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s;

	if (!ticked)
		ticked = true; /* once: all CPUs read what is next to it */
	if (!sampling)
		return;
	if (cpu < MAX_CPUS && other_clock[cpu / 64] >> cpu % 64 & 1)
		return;
	if (!drawn())
		return;
	s = begin_sample();
	if (!s)
		return;
	sample_user(s, 0, true);
	if (!user_tick)
		sample_interrupted(s, ctx);
	end_sample();
}

/* The kernel's function for the tick's timer. */
const volatile __u64 tick_function = 0;

struct hrtimer {
	void *function;
} __attribute__((preserve_access_index));

/* A timer of this CPU expires: the tick's, or another one. */
static __always_inline void take_expiry(void *ctx, struct hrtimer *timer)
{
	if ((__u64)timer->function == tick_function)
		take_tick(ctx, false);
}
