/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * As much of a user stack as the mode asks for, into scratch.sample, and what user space needs to complete it, behind the
 * frames. Take it, append the tail, and say whether the record went out.
 */
#pragma once

#include "chain.bpf.h"
#include "walk.bpf.h"

/* Walk every sample whose link is not known; otherwise those, too, only by the rate. */
const volatile bool walk_unknown = true;

/* Whether the link that is in the sample suffices. */
static __always_inline bool link_suffices(struct scratch *s, const struct hotspot_process *vm, __u32 pid)
{
	__u32 slot = vm ? vm->slot : MAX_ATTACHED;
	struct chain_rate *rate = bpf_map_lookup_elem(&chain_rates, &slot);
	__u64 owner, tag, *known;

	if (!rate)
		return false;
	if (!depth_of(s, 0) || !depth_of(s, 1))
		return false; /* on another stack than the thread's: nothing distinguishes activations */
	if (vm)
		owner = mix(0, vm->serial);
	else
		owner = mix(s->sample.header.start, (__u64)s->sample.header.exec << 32 | pid);
	tag = link_tag(s, mix(owner, rate->generation));
	s->start.link_tag = tag;
	known = link_slot(tag);
	if (known && *known == (tag & ~LINK_STEADY)) {
		s->start.link_tag = *known;
		return false;
	}
	if (!known || *known != tag) {
		s->start.tag = tag;
		if (walk_unknown)
			return false;
	}
	if (rate->every && bpf_get_prandom_u32() % rate->every == 0) {
		s->sample.flags |= SAMPLE_DRAWN;
		return false;
	}
	s->start.tag = 0; /* nothing is learned from a link */
	return true;
}

static __always_inline void take_link(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task,
				      __u32 pid)
{
	struct sample *sample = &s->sample;

	s->start.depth_base = s->start.stack_base ? s->start.stack_base : native_stack_base(task);
	s->start.tag = s->start.link_tag = 0;
	sample->flags |= SAMPLE_DEPTHS;
	if (walk_user(s, vm, LINK_FRAMES, 0) != END_KNOWN)
		return; /* the whole stack is no longer */
	if (sample->user_frames > LINK_FRAMES)
		sample->user_frames = LINK_FRAMES;
	if (link_suffices(s, vm, pid)) {
		sample->flags |= SAMPLE_LINK;
		count_walk(SAMPLES_LINKED, 1);
		if (!check_contexts)
			return;
	}
	walk_user(s, vm, MAX_USER_FRAMES, 0);
}

static __always_inline void take_partial(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task,
					 __u32 tid)
{
	int levels = kept_acquire(task, tid, vm ? vm->serial : 0, s->sample.header.exec);

	s->start.kept = levels >= 0;
	/* Not where it was sampled: that has moved on. */
	walk_user(s, vm, MAX_USER_FRAMES, levels > 0 ? levels - 1 : 0);
	if (s->start.own)
		count_walk(SAMPLES_PARTIAL, 1);
	else
		s->start.own = s->sample.user_frames;
}

/* Touches what every sample needs, before it needs it. */
static __always_inline void touch_sample(const struct scratch *s, __u32 tid)
{
	touch(&s->threads[tid & (THREADS - 1)]);
	touch(&s->start.owner);
	touch(&s->start.depth_base);
	touch(&s->start.chunk_to);
	touch(&s->start.chunk);
	touch(&s->start.placed);
	touch(&s->caller);
	touch(&s->stackcopy_low);
#pragma unroll
	for (__u32 i = 0; i < 32; i += 8)
		touch(&s->sample.frames[i]);
}

/* Takes the stack that begins at scratch.regs. vm is 0 where the process has no attached VM. */
static __always_inline void take_context(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task,
					 __u32 pid, __u32 tid)
{
	begin_walks(s, vm, task, tid);
	if (contexts == CONTEXT_CHAIN)
		take_link(s, vm, task, pid);
	else if (contexts == CONTEXT_PARTIAL)
		take_partial(s, vm, task, tid);
	else
		walk_user(s, vm, MAX_USER_FRAMES, 0);
}

/* What follows n words behind the sample's header, 0 if there is no room for so many. */
static __always_inline void *behind_frames(struct scratch *s, __u64 n)
{
	asm volatile("" : "+r"(n)); /* what is compared is what is used */
	if (n > MAX_FRAMES + 1)
		return 0;
	return (void *)s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) + 8 * n;
}

struct depths {
	struct scratch *s;
	__u32 at; /* frames before */
};

/* bpf_loop callback: appends the depth of one frame. */
static long append_depth(__u64 i, struct depths *d)
{
	__u32 *out = behind_frames(d->s, d->at);

	asm volatile("" : "+r"(i));
	if (!out || i >= MAX_USER_FRAMES)
		return 1;
	out[i] = depth_of(d->s, i);
	return 0;
}

/* Appends the tag of the link, unless the sample is one, and the depths of n frames. */
static __always_inline __u32 append_depths(struct scratch *s, __u32 n, __u32 at)
{
	struct depths d = {.s = s, .at = at};
	__u32 size = (n * 4 + 7) & ~7u;
	__u64 *tag = behind_frames(s, at);

	if (tag && !(s->sample.flags & SAMPLE_LINK)) {
		*tag = s->start.link_tag;
		d.at++;
		size += sizeof(*tag);
	}
	bpf_loop(n, append_depth, &d, 0);
	return size;
}

static __always_inline __u32 append_shared(struct scratch *s, __u32 at)
{
	struct kept_stack *k = kept_of(s->start.tid);
	struct shared_stack *out = behind_frames(s, at);

	if (!k || !out)
		return 0;
	out->base = s->start.shared ? k->serial : 0;
	if (!++k->serial)
		k->serial = 1;
	out->serial = k->serial;
	out->frames = s->start.shared;
	out->own = s->start.own;
	s->sample.flags |= SAMPLE_SHARED;
	return sizeof(*out);
}

/* Appends what goes behind the n + k frames; returns its size in bytes. */
static __always_inline __u32 append_tail(struct scratch *s, __u32 n, __u32 k)
{
	if (contexts == CONTEXT_CHAIN)
		return append_depths(s, n, n + k);
	if (contexts == CONTEXT_PARTIAL && s->start.kept)
		return append_shared(s, n + k);
	return 0;
}

/* The record went out, or was lost: then nothing must be built on it. */
static __always_inline void end_context(struct scratch *s, bool lost)
{
	if (contexts == CONTEXT_CHAIN && s->start.tag && !lost) {
		__u64 *known = link_slot(s->start.tag);

		if (known)
			*known = s->start.tag;
	}
	if (contexts == CONTEXT_PARTIAL && s->start.kept) {
		struct kept_stack *k = kept_of(s->start.tid);

		if (!k)
			return;
		if (lost || !worth_keeping(s))
			k->count = 0;
		else
			keep(s, k);
		kept_release(k);
	}
}
