/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Native frames, by the frame-pointer chain. */
#pragma once

#include "hotspot.bpf.h"

#define NATIVE_LEAVES 64 /* frames of native code above a thread's Java frames */

static __always_inline void push_native(struct walk *w, __u64 pc)
{
	push_frame(w, (__u64)FRAME_NATIVE << FRAME_KIND_SHIFT | (pc & 0xfffffffffffffffull));
}

/*
 * The caller of one native frame. Returns 1 where the chain ends, at the last Java frame's sp, or when the chain reaches
 * the code cache of an attached VM, from where java_step goes on.
 */
static __always_inline int native_step(struct walk *w)
{
	struct {
		__u64 bp, ra;
	} saved;

	if (!w->bp) /* code without frame pointers uses rbp for anything: only behind other frames does 0 mean the root */
		return end_walk(w, w->leaf ? END_POINTER : END_ROOT);
	if (w->bp < w->sp || (w->bp & 7))
		return end_walk(w, END_POINTER);
	if (w->s->start.native_to && w->bp >= w->s->start.native_to)
		return end_walk(w, END_POINTER);
	if (bpf_probe_read_user(&saved, sizeof(saved), (void *)w->bp))
		return end_walk(w, END_POINTER);
	if (!saved.ra)
		return end_walk(w, END_ROOT);
	w->sp = w->bp + 16;
	w->bp = saved.bp;
	w->pc = saved.ra;
	w->leaf = 0;
	if (w->vm && in_code_cache(w->vm, saved.ra)) {
		w->java = 1;
		return 1;
	}
	if (saved.ra < 4096 || saved.ra >> 56)
		return end_walk(w, END_POINTER); /* data, not an address */
	/* Only at their end it turns out whether the frames of a leaf call are any. */
	if (w->frames >= (w->phase == PHASE_LEAF_CALL ? MAX_USER_FRAMES : wanted(w)))
		return end_walk(w, enough(w));
	push_native(w, saved.ra);
	return 0;
}
