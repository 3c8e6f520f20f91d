/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * As much of a user stack as the mode asks for, into scratch.sample, and what user space needs to
 * complete it, behind the frames. Take it, append the tail, and say whether the record went out.
 */
#pragma once

#include "sample/chain.bpf.h"
#include "sample/partial.bpf.h"
#include "kernel/ringwakeup.bpf.h"
#include "walk/walk.bpf.h"

/* Walk every sample whose link is not known; otherwise those, too, only by the rate. */
const volatile bool walk_unknown = true;

/*
 * bpf_loop callback: a step, after noting where the last frame stands. Frames of a leaf call are
 * not looked for in the kept stack, and do not count for a link: whether they are any is not known
 * before the leaf call's end.
 */
static long context_step(__u64 i, struct walk *w)
{
	struct context *c = this_context();
	struct scratch *s = w->s;

	if (!c)
		return 1;
	if (place_frame(w->frames, s->start.chunk_to ? 0 : w->sp, w->phase == PHASE_JAVA ? IN_JAVA : w->bp,
			s->start.native_to) &&
	    contexts == CONTEXT_PARTIAL && w->phase != PHASE_LEAF_CALL && c->kept_left && met_kept(w->frames))
		return end_walk(w, END_KNOWN);
	if (w->phase == PHASE_ANCHOR && w->frames >= c->limit)
		return end_walk(w, END_DEEP); /* Java frames follow */
	w->limit = w->phase == PHASE_LEAF_CALL ? MAX_USER_FRAMES : c->limit;
	if (walk_step(i, w))
		return 1;
	if (contexts == CONTEXT_CHAIN && w->s->start.on_heap) /* not by s: there is no stack left to keep that */
		return end_walk(w, END_HEAP); /* links know frames by where they stand on the stack */
	return 0;
}

static __noinline void walk_context(struct scratch *s, const struct hotspot_process *vm)
{
	struct walk w;

	begin_walk(&w, s, vm, MAX_USER_FRAMES);
	begin_anyhow(&w);
	bpf_loop(3 * MAX_USER_FRAMES, context_step, &w, 0);
	finish_walk(&w);
}

/*
 * Takes frames of the stack that begins at scratch.regs, at most limit. Returns the enum walk_end.
 */
static __always_inline __u32 take_frames(struct scratch *s, struct context *c, const struct hotspot_process *vm,
					 __u32 limit)
{
	struct sample *sample = &s->sample;

	c->limit = limit;
	c->met = c->own = c->shared = c->placed = c->supposed = 0;
	s->start.chunk = limit < MAX_USER_FRAMES ? LINK_CHUNK : STACKCOPY_CHUNK;
	walk_context(s, vm);
	if (sample->end == END_DEEP)
		sample->end = limit < MAX_USER_FRAMES ? END_KNOWN : END_DEPTH;
	if (c->placed != sample->user_frames) /* the walk ended at this frame: it leads nowhere */
		c->cfa[(sample->user_frames - 1) & (MAX_USER_FRAMES - 1)] = 0;
	return sample->end;
}

/* Whether the link that is in the sample suffices. */
static __always_inline bool link_suffices(struct scratch *s, struct context *c, const struct hotspot_process *vm,
					  __u32 pid)
{
	__u32 slot = vm ? vm->slot : MAX_ATTACHED;
	struct chain_rate *rate = bpf_map_lookup_elem(&chain_rates, &slot);
	__u64 owner, tag, *known;

	if (!rate)
		return false;
	if (!depth_of(c, 0) || !depth_of(c, 1))
		return false; /* on another stack than the thread's: nothing distinguishes activations */
	if (vm)
		owner = mix(0, vm->serial);
	else
		owner = mix(s->sample.header.start, (__u64)s->sample.header.exec << 32 | pid);
	tag = link_tag(s, c, mix(owner, rate->generation));
	c->link_tag = tag;
	known = link_slot(tag);
	if (known && *known == (tag & ~LINK_STEADY)) {
		c->link_tag = *known;
		return false;
	}
	if (!known || *known != tag) {
		c->tag = tag;
		if (walk_unknown)
			return false;
	}
	if (rate->every && bpf_get_prandom_u32() % rate->every == 0) {
		s->sample.flags |= SAMPLE_DRAWN;
		return false;
	}
	c->tag = 0; /* nothing is learned from a link */
	return true;
}

static __always_inline void take_link(struct scratch *s, struct context *c, const struct hotspot_process *vm,
				      struct task_struct *task, __u32 pid)
{
	struct sample *sample = &s->sample;

	c->depth_base = s->start.stack_base ? s->start.stack_base : native_stack_base(task);
	c->tag = c->link_tag = 0;
	sample->flags |= SAMPLE_DEPTHS;
	if (take_frames(s, c, vm, LINK_FRAMES) != END_KNOWN)
		return; /* the whole stack is no longer */
	if (sample->user_frames > LINK_FRAMES)
		sample->user_frames = LINK_FRAMES;
	if (link_suffices(s, c, vm, pid)) {
		sample->flags |= SAMPLE_LINK;
		count_walk(SAMPLES_LINKED, 1);
		if (!check_contexts)
			return;
	}
	take_frames(s, c, vm, MAX_USER_FRAMES);
}

static __always_inline void take_partial(struct scratch *s, struct context *c, const struct hotspot_process *vm,
					 struct task_struct *task, __u32 tid)
{
	int levels = kept_acquire(task, tid, vm ? vm->serial : 0, s->sample.header.exec);

	c->kept = levels >= 0;
	c->kept_left = levels > 0 ? levels - 1 : 0; /* not where it was sampled: that has moved on */
	take_frames(s, c, vm, MAX_USER_FRAMES);
	if (c->own)
		count_walk(SAMPLES_PARTIAL, 1);
	else
		c->own = s->sample.user_frames;
}

struct depths {
	struct scratch *s;
	const struct context *c;
	__u32 at; /* frames before */
};

/* bpf_loop callback: appends the depth of one frame. */
static long append_depth(__u64 i, struct depths *d)
{
	__u32 *out = behind_frames(d->s, d->at);

	asm volatile("" : "+r"(i));
	if (!out || i >= MAX_USER_FRAMES)
		return 1;
	out[i] = depth_of(d->c, i);
	return 0;
}

/* Appends the tag of the link, unless the sample is one, and the depths of n frames. */
static __always_inline __u32 append_depths(struct scratch *s, const struct context *c, __u32 n, __u32 at)
{
	struct depths d = {.s = s, .c = c, .at = at};
	__u32 size = (n * 4 + 7) & ~7u;
	__u64 *tag = behind_frames(s, at);

	if (tag && !(s->sample.flags & SAMPLE_LINK)) {
		*tag = c->link_tag;
		d.at++;
		size += sizeof(*tag);
	}
	bpf_loop(n, append_depth, &d, 0);
	return size;
}

static __always_inline __u32 append_shared(struct scratch *s, const struct context *c, __u32 at)
{
	struct kept_stack *k = kept_of(s->start.tid);
	struct shared_stack *out = behind_frames(s, at);

	if (!k || !out)
		return 0;
	out->base = c->shared ? k->serial : 0;
	if (!++k->serial)
		k->serial = 1;
	out->serial = k->serial;
	out->frames = c->shared;
	out->own = c->own;
	s->sample.flags |= SAMPLE_SHARED;
	return sizeof(*out);
}

/* A sample begins. */
static __always_inline void begin_stack(const struct scratch *s, __u32 tid)
{
	struct context *c = this_context();

	if (c)
		c->taken = 0;
}

/* Takes the stack that begins at scratch.regs. vm is 0 where the process has no attached VM. */
static __always_inline void take_stack(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task,
				       __u32 pid, __u32 tid)
{
	struct context *c = this_context();

	if (!c)
		return;
	c->taken = 1;
	begin_walks(s, vm, task, tid);
	if (contexts == CONTEXT_CHAIN)
		take_link(s, c, vm, task, pid);
	else
		take_partial(s, c, vm, task, tid);
}

/* All that was taken is sent. */
static __always_inline void shorten_stack(struct scratch *s)
{
	s->stack.frames = s->sample.user_frames;
}

/* Appends what goes behind the n + k frames; returns its size in bytes. */
static __always_inline __u32 append_tail(struct scratch *s, const struct context *c, __u32 n, __u32 k)
{
	if (contexts == CONTEXT_CHAIN)
		return append_depths(s, c, n, n + k);
	return c->kept ? append_shared(s, c, n + k) : 0;
}

/* The record went out, or was lost: then nothing must be built on it. */
static __always_inline void end_context(struct scratch *s, struct context *c, bool lost)
{
	if (contexts == CONTEXT_CHAIN && c->tag && !lost) {
		__u64 *known = link_slot(c->tag);

		if (known)
			*known = c->tag;
	}
	if (contexts == CONTEXT_PARTIAL && c->kept) {
		struct kept_stack *k = kept_of(s->start.tid);

		if (!k)
			return;
		if (lost || !worth_keeping(s, c))
			k->count = 0;
		else
			keep(s, c, k);
		kept_release(k);
	}
}

/* Writes the record of the sample; returns its size in bytes, 0 if it was lost. */
static __always_inline __u64 write_sample(struct scratch *s)
{
	__u32 n = s->sample.user_frames, k = s->sample.kernel_frames;
	__u64 size = offsetof(struct sample, frames) + 8 * (__u64)(n + k), room = sizeof(s->sample) + sizeof(s->tail);
	struct context *c = this_context();
	bool lost;

	if (!c)
		return 0;
	if (c->taken)
		size += append_tail(s, c, n, k);
	if (size > room)
		size = room;
	lost = bpf_ringbuf_output(&events, &s->sample, size, wakeup_flags());
	if (c->taken)
		end_context(s, c, lost);
	return lost ? 0 : size;
}
