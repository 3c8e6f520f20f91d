/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The shadow stack: what a thread has entered and not left. Entries and returns pair up by method,
 * also when an exception ends frames, for then HotSpot reports their returns too. Positions of
 * frames say so where it does not.
 */
#pragma once

#include "call/exact/exactcode.bpf.h"
#include "call/exact/exacttree.bpf.h"

#define MAX_UNWIND 256	  /* frames taken away at one event; what is left goes at the next ones */
#define MAX_MISMATCH 32	  /* inlined frames searched for the one that returned */
#define ALIGNMENT_SLACK 8 /* bytes by which a frame moves down when compiled code takes it over */

/* Whether position a is further in than b: stacks grow down, and may cross a multiple of 4 GB. */
static __always_inline bool further_in(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* Takes away frames that must have ended: the event comes from further out. */
static __always_inline void unwind(struct exact_state *t)
{
	__u32 gone = 0;

	if (!t->depth || !t->position)
		return;
	if (t->depth > EXACT_DEPTH) {
		if (!further_in(frame_at(t, EXACT_DEPTH - 1)->position, t->position))
			return; /* of those beyond, positions are not known */
		gone = t->depth - EXACT_DEPTH;
		t->depth = EXACT_DEPTH;
	}
	for (int i = 0; i < MAX_UNWIND && t->depth; i++) {
		__u32 top = frame_at(t, t->depth - 1)->position;

		if (!top || !further_in(top, t->position))
			break;
		t->depth--;
		gone++;
		}
	if (gone)
		count_exact(EXACT_UNWOUND, gone);
}

/* Enters the method in t->key. */
static __always_inline void push(struct exact_state *t)
{
	__u32 parent = t->root;
	struct exact_frame *f;

	t->caller = 0;
	t->edge.inlined = 0;
	if (t->depth >= EXACT_DEPTH) {
		t->depth++;
		t->return_at = 0; /* it may be that of the frame around */
		count_overflow(frame_at(t, EXACT_DEPTH - 1)->node, EXACT_TOO_DEEP);
		return;
	}
	if (t->depth) {
		f = frame_at(t, t->depth - 1);
		parent = f->node & ~NODE_INLINED;
		t->caller = f->method;
		t->edge.inlined = t->position && f->position == t->position;
	} else if (!t->record.complete) {
		t->return_at = 0; /* it may be that of the frame around */
	}
	parent = enter_node(t, parent);
	f = frame_at(t, t->depth);
	f->node = t->edge.inlined ? parent | NODE_INLINED : parent;
	f->position = t->position;
	f->method = t->key.method;
	t->depth++;
}

/*
 * Whether the topmost frame is the one that returned. A frame that was inlined gets a place of its
 * own when the code around it is deoptimised. If one that was not returns from further in, that is
 * another one that was never entered: the interpreter reports the return of a frame that overflowed
 * the stack before its method began.
 */
static __always_inline bool returned(const struct exact_state *t, const struct exact_frame *f)
{
	return f->method == t->key.method &&
	       (!t->position || !f->position || f->node & NODE_INLINED || f->position - t->position <= ALIGNMENT_SLACK);
}

/*
 * A return that is not the topmost frame's: it may be that of one in the same place, whose callees
 * did not return.
 */
static __noinline int mismatch(struct exact_state *t)
{
	__u32 depth = t->depth;

	for (int i = 1; i < MAX_MISMATCH; i++) {
		struct exact_frame *f;

		if (i >= depth || !t->position)
			break;
		f = frame_at(t, depth - 1 - i);
		if (f->position != t->position)
			break;
		if (f->method == t->key.method) {
			t->depth = depth - 1 - i;
			count_exact(EXACT_UNWOUND, i);
			return 0;
		}
	}
	count_exact(EXACT_STRAY, 1);
	return 0;
}

/* Leaves the method in t->key. */
static __always_inline void pop(struct exact_state *t)
{
	if (!t->depth)
		count_exact(t->record.complete ? EXACT_STRAY : EXACT_BEFORE, 1);
	else if (t->depth > EXACT_DEPTH || returned(t, frame_at(t, t->depth - 1)))
		t->depth--;
	else
		mismatch(t);
}
