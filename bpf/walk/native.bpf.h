/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Native frames, by the frame-pointer chain. */
#pragma once

#include "walk/cpython.bpf.h"
#include "walk/hotspot.bpf.h"

#define NATIVE_LEAVES 64 /* frames of native code above a thread's Java frames */

static __always_inline void push_native(struct walk *w, __u64 pc)
{
	push_frame(w, (__u64)FRAME_NATIVE << FRAME_KIND_SHIFT | (pc & 0xfffffffffffffffull));
}

/*
 * A function of Go that calls nothing may have no frame. Then rbp is that of its caller, which the
 * chain of frame pointers leaves out: the return address is on top of the stack. So it is where a
 * frame is not built yet. Whether there is a frame is in tables of the program that are too large
 * for here: so user space decides (FRAME_MAYBE_SHIFT). Code of Go keeps the address of its
 * goroutine in r14, and the goroutine begins with the bounds of its stack: other code gives no such
 * frames. Returns whether there is one, in scratch.
 */
__noinline int find_maybe_caller(void)
{
	struct scratch *s = this_scratch();
	__u64 bounds[2], ra = 0, distance;
	__u8 b[8] = {};

	if (!s || !s->regs.goroutine)
		return 0;
	if (bpf_probe_read_user(bounds, sizeof(bounds), (void *)s->regs.goroutine))
		return 0;
	if (s->regs.sp < bounds[0] || s->regs.sp >= bounds[1] || (s->regs.sp & 7))
		return 0;
	if (bpf_probe_read_user(&ra, sizeof(ra), (void *)s->regs.sp))
		return 0;
	distance = ra - s->regs.pc;
	if (distance + (1ull << (FRAME_MAYBE_DISTANCE_BITS - 1)) >= 1ull << FRAME_MAYBE_DISTANCE_BITS)
		return 0;
	if (bpf_probe_read_user(b, 6, (void *)(ra - 6)))
		return 0;
	if (!is_call(b))
		return 0;
	distance &= (1ull << FRAME_MAYBE_DISTANCE_BITS) - 1;
	s->start.maybe_caller = (__u64)FRAME_NATIVE << FRAME_KIND_SHIFT | 1ull << FRAME_MAYBE_SHIFT |
				distance << FRAME_MAYBE_PC_BITS | (s->regs.pc & ((1ull << FRAME_MAYBE_PC_BITS) - 1));
	return 1;
}

/*
 * Whether an address follows a call. What code without frame pointers has in rbp may lead to words
 * of the stack that are none.
 */
__noinline int behind_call(__u64 at)
{
	__u8 b[8] = {};

	return !bpf_probe_read_user(b, 6, (void *)(at - 6)) && is_call(b);
}

/*
 * The caller of one native frame. Returns 1 where the chain ends, at the last Java frame's sp, or
 * when the chain reaches the code cache of an attached VM, from where java_step goes on.
 */
static __always_inline int native_step(struct walk *w)
{
	struct {
		__u64 bp, ra;
	} saved;

	/*
	 * code without frame pointers uses rbp for anything: only behind other frames does 0 mean
	 * the root
	 */
	if (!w->bp)
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
#ifndef CONTEXTS
	if (is_cpython(w->vm) && !behind_call(saved.ra))
		return end_walk(w, END_POINTER);
#endif
	if (w->frames >= w->limit)
		return end_walk(w, END_DEEP);
#ifndef CONTEXTS
	if (is_cpython(w->vm) && in_python_loop(w->vm, saved.ra)) {
		w->phase = PHASE_PYTHON;
		return 0;
	}
#endif
	push_native(w, saved.ra);
	return 0;
}
