/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Native frames: by unwind tables where code has some, and otherwise by the frame-pointer chain. */
#pragma once

#include "walk/cpython.bpf.h"
#include "walk/hotspot.bpf.h"
#include "walk/unwind.bpf.h"

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

/* The caller by frame pointer, into scratch.caller. Returns as native_caller. */
static __always_inline int follow_pointer(struct scratch *s, __u64 sp, __u64 bp, __u64 leaf)
{
	/*
	 * code without frame pointers uses rbp for anything: only behind frames that have one does
	 * 0 mean the root
	 */
	if (!bp)
		return leaf || led_by_table(s) ? END_POINTER : END_ROOT;
	if (bp < sp || (bp & 7))
		return END_POINTER;
	if (s->start.native_to && bp >= s->start.native_to)
		return END_POINTER;
	if (!stackcopy_cover(s, s->unwind.stack_to, bp, 16)) {
		s->caller.pc = stackcopy_word(s, bp + 8);
		s->caller.bp = stackcopy_word(s, bp);
	} else if (bpf_probe_read_user(&s->caller.pc, 8, (void *)bp + 8) ||
		   bpf_probe_read_user(&s->caller.bp, 8, (void *)bp)) {
		/* the end of what is mapped is near, and these words are behind it */
		return END_POINTER;
	}
	s->caller.sp = bp + 16;
	s->unwind.led = 0;
	return UNWOUND;
}

/*
 * The caller of a native frame, into scratch.caller. leaf says that pc is where the thread is, and
 * not a return address. Returns UNWOUND, or an enum walk_end. It is a function of its own for the
 * verifier, which follows every way through it for each state of a walk otherwise.
 */
__noinline int native_caller(__u64 pc, __u64 sp, __u64 bp, __u64 leaf)
{
	struct scratch *s = this_scratch();
	int how;

	if (!s)
		return END_READ;
	how = unwind_frame(s, pc, sp, bp, leaf);
	if (how == NO_TABLE)
		how = follow_pointer(s, sp, bp, leaf);
	if (how != UNWOUND)
		return how;
	if (!s->caller.pc)
		return END_ROOT;
	if (s->caller.pc < 4096 || s->caller.pc >> 56)
		return END_POINTER; /* data, not an address */
	return UNWOUND;
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
	int how = native_caller(w->pc, w->sp, w->bp, w->leaf);

	if (how != UNWOUND) {
		/* of leaf calls, the return address is looked for */
		if (how == END_POINTER && w->phase != PHASE_LEAF_CALL)
			want_table(w->s);
		return end_walk(w, how);
	}
	w->pc = w->s->caller.pc;
	w->sp = w->s->caller.sp;
	w->bp = w->s->caller.bp;
	w->leaf = 0;
	if (w->vm && in_code_cache(w->vm, w->pc)) {
		w->java = 1;
		return 1;
	}
#ifndef CONTEXTS
	if (is_cpython(w->vm) && !led_by_table(w->s) && !behind_call(w->pc))
		return end_walk(w, END_POINTER);
#endif
	if (w->frames >= w->limit)
		return end_walk(w, END_DEEP);
#ifndef CONTEXTS
	if (is_cpython(w->vm) && in_python_loop(w->vm, w->pc)) {
		w->phase = PHASE_PYTHON;
		return 0;
	}
#endif
	/* as return addresses are: behind what was executed */
	push_native(w, w->pc + (w->pc == w->s->unwind.interrupted));
	return 0;
}
