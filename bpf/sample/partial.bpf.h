/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Partial walks (Whaley, Java Grande 2000, section 4): a walk ends where it meets the thread's
 * previous one. Whaley marks the frames that he has seen in the thread's own stack. Here they are
 * kept in a map, and a frame counts as seen if the same call site stands at the same place. As that
 * may happen by chance, several frames in a row must match.
 */
#pragma once

#include "sample/frameposition.bpf.h"

#define KEPT_LEVELS 256 /* a power of two: innermost frames of a stack that are kept */
#define KEPT_STACKS 1024 /* a power of two; 4 MB */
/* a power of two: one in so many samples of a thread is walked whole, so that no mistake lasts */
#define KEPT_SERIES 32
#define KEPT_REACH 16	 /* levels that were left since, passed per frame */

struct kept_level {
	__u64 frame, cfa;
};

/*
 * The stack that a thread's previous sample had, as long as it was never more than MAX_KEPT_FRAMES.
 * Levels are counted from the outermost frame, 0; those from low to count - 1 are in levels[],
 * modulo KEPT_LEVELS.
 */
struct kept_stack {
	__u32 busy; /* on a CPU now */
	__u32 tid;
	__u64 born;  /* of the thread */
	__u32 owner; /* hotspot_process.serial */
	__u32 exec;  /* as in struct event_header */
	__u32 serial; /* of the sample */
	__u32 low, count;
	struct kept_level levels[KEPT_LEVELS];
};

/* key: tid, folded */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KEPT_STACKS);
	__type(key, __u32);
	__type(value, struct kept_stack);
} kept_stacks SEC(".maps");

/* How many frames in a row must be the kept ones. */
const volatile __u32 confirm_levels = 2;

static __always_inline struct kept_stack *kept_of(__u32 tid)
{
	__u32 i = tid & (KEPT_STACKS - 1);

	return bpf_map_lookup_elem(&kept_stacks, &i);
}

/*
 * Takes the current thread's kept stack until kept_release. Returns how many levels of it to look
 * for, -1 if it is busy with another thread.
 */
static __always_inline int kept_acquire(struct task_struct *task, __u32 tid, __u32 owner, __u32 exec)
{
	struct kept_stack *k = kept_of(tid);
	bool other;

	if (!k || __sync_val_compare_and_swap(&k->busy, 0, 1))
		return -1;
	other = k->tid != tid || k->born != task->start_boottime;
	if (other || k->owner != owner || k->exec != exec) {
		if (other && k->count)
			count(STACKS_DISPLACED, 1);
		k->tid = tid;
		k->born = task->start_boottime;
		k->owner = owner;
		k->exec = exec;
		k->count = 0;
	}
	return k->serial % KEPT_SERIES ? k->count & (2 * MAX_KEPT_FRAMES - 1) : 0;
}

static __always_inline void kept_release(struct kept_stack *k)
{
	__sync_val_compare_and_swap(&k->busy, 1, 0);
}

/* The innermost of that many levels, which are more than low. */
static __always_inline struct kept_level *innermost_level(struct kept_stack *k, __u32 levels)
{
	return &k->levels[(levels - 1) & (KEPT_LEVELS - 1)];
}

/*
 * Compares the last one of that many frames with what is kept of the thread, of which
 * context.kept_left levels are left. Leaves there how many are left now, and returns whether the
 * frame is a kept one.
 */
static __always_inline bool compare_kept(const struct scratch *s, struct context *c, __u32 frames)
{
	struct kept_stack *k = kept_of(s->start.tid);
	__u32 i = frames - 1, left = c->kept_left;
	struct kept_level *l;
	__u64 cfa;

	if (!k || i >= MAX_USER_FRAMES) {
		c->kept_left = 0;
		return false;
	}
	cfa = c->cfa[i];
	for (int n = 0; n < KEPT_REACH; n++) {
		if (left <= k->low || innermost_level(k, left)->cfa >= cfa)
			break;
		left--;
	}
	l = innermost_level(k, left);
	c->kept_left = left;
	if (left <= k->low || !cfa || l->cfa != cfa || l->frame != s->sample.frames[i])
		return false;
	c->kept_left = left - 1;
	return true;
}

/*
 * Whether the walk has met the kept stack: the last one of that many frames is one of those in a
 * row that must agree.
 */
__noinline int met_kept(__u32 frames)
{
	struct scratch *s = this_scratch();
	struct context *c = this_context();

	if (!s || !c || frames < 2) /* the sampled frame moves on without leaving its place */
		return 0;
	if (s->start.on_heap) /* frames on the heap have no place, and others stand on the stack in their stead */
		return 0;
	if (!compare_kept(s, c, frames)) {
		c->met = 0;
		return 0;
	}
	c->met++;
	if (c->met < confirm_levels || !c->kept_left) /* if nothing is left to share, the next step is the last one */
		return 0;
	c->own = frames;
	c->shared = c->kept_left;
	c->kept_left = 0;
	return !check_contexts;
}

struct keeping {
	struct scratch *s;
	struct context *c;
	struct kept_stack *k;
};

/* bpf_loop callback: keeps one frame. */
static long keep_level(__u64 i, struct keeping *keeping)
{
	__u32 at = keeping->c->shared + keeping->c->own - 1 - (__u32)i;

	if (i < MAX_USER_FRAMES) {
		at &= KEPT_LEVELS - 1;
		keeping->k->levels[at].frame = keeping->s->sample.frames[i];
		keeping->k->levels[at].cfa = keeping->c->cfa[i];
	}
	return 0;
}

/*
 * Whether the sample's stack may be built on. A walk that failed may come further the next time,
 * and a virtual thread's frames come and go where they stand; a chain of frame pointers ends where
 * it ended.
 */
static __always_inline bool worth_keeping(const struct scratch *s, const struct context *c)
{
	if (c->shared)
		return true;
	return !s->start.on_heap && (s->sample.end == END_ROOT || s->sample.end == END_DEPTH ||
				     s->sample.end == END_POINTER);
}

/* Keeps the sample's own frames, above those that it shares. */
static __always_inline void keep(struct scratch *s, struct context *c, struct kept_stack *k)
{
	struct keeping keeping = {.s = s, .c = c, .k = k};
	__u32 levels = c->own + c->shared, low = levels < KEPT_LEVELS ? 0 : levels - KEPT_LEVELS;

	if (levels > MAX_KEPT_FRAMES) {
		k->count = 0;
		return;
	}
	bpf_loop(c->own < KEPT_LEVELS ? c->own : KEPT_LEVELS, keep_level, &keeping, 0);
	k->low = c->shared && k->low > low ? k->low : low;
	k->count = levels;
}
