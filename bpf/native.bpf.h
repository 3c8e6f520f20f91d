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
 * bpf_loop callback: the caller of one native frame. Ends where the chain does, at the last Java frame's sp, or when
 * the chain reaches the code cache of an attached VM, from where java_step goes on.
 */
static long native_step(__u64 i, struct walk *w)
{
	struct {
		__u64 bp, ra;
	} saved;

	if (w->frames >= MAX_USER_FRAMES)
		return end_walk(w, END_DEPTH);
	if (!w->bp) /* code without frame pointers uses rbp for anything: only behind other frames does 0 mean the root */
		return end_walk(w, w->leaf ? END_POINTER : END_ROOT);
	if (w->bp < w->sp || (w->bp & 7))
		return end_walk(w, END_POINTER);
	if (w->native_to && w->bp >= w->native_to)
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
	push_native(w, saved.ra);
	return 0;
}
