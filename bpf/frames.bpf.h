/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A walk of a user stack: where it stands, and the frames that it has pushed. */
#pragma once

#include "scratch.bpf.h"

/* How contexts are found, and whether every stack is also walked in full, to check the contexts. */
const volatile __u8 contexts = CONTEXT_WALK;
const volatile bool check_contexts = false;

/* Which rule finds the next frame. */
enum walk_phase {
	PHASE_JAVA,
	PHASE_NATIVE,	 /* by frame pointer, to the root or to Java */
	PHASE_ANCHOR,	 /* by frame pointer; then Java goes on at the anchor */
	PHASE_LEAF_CALL, /* by frame pointer to Java, which called without an anchor */
};

/*
 * Flags are words of their own: of those, the verifier keeps track. With bytes it takes ten times as long. frames is the upper half of a
 * word: of that it keeps no track. Otherwise it follows the walk for every number of frames, and Linux 6.12 does not come to an end.
 */
struct walk {
	const struct hotspot_process *vm;
	struct scratch *s;
	__u64 pc, sp, bp;
	__u32 limit; /* of frames: MAX_USER_FRAMES, or what a link takes */
	__u32 frames;
	__u8 end;  /* enum walk_end */
	__u64 leaf; /* the registers are the sampled ones; otherwise pc is a return address */
	__u64 near; /* pc called a stub or native code, perhaps with arguments that it pushed */
	__u64 phase; /* enum walk_phase */
	__u64 java; /* native walk: pc has reached the code cache */
	__u64 native; /* Java walk: the caller is native code */
};

#define IN_JAVA 1 /* no frame pointer */
#define LEAF_FRAMES (MAX_USER_FRAMES - ROOT_FRAMES)

/*
 * Of a whole walk that goes deeper than there is room, the innermost frames stay, and those behind them go round in the rest of the
 * room: at the end it has the outermost ones.
 */
static __always_inline void push_frame(struct walk *w, __u64 frame)
{
	__u32 n = w->frames, at = n;

	if (contexts == CONTEXT_WALK && n >= MAX_USER_FRAMES) {
		if (n >= MAX_WALKED_FRAMES)
			return;
		at = LEAF_FRAMES + (n - LEAF_FRAMES) % ROOT_FRAMES;
	}
	asm volatile("" : "+r"(at)); /* what is compared is what is used */
	if (at < MAX_USER_FRAMES) {
		w->s->sample.frames[at] = frame;
		w->frames = n + 1;
	}
}

/*
 * Notes the canonical frame address of the last one of that many frames, unless that is done. Of a Java frame that is the
 * stack pointer of its caller, which is known by then. A native frame is taken to have set up its frame pointer; one above
 * Java frames without, which begin at java, ends there. Where a frame stands must not depend on how far a walk goes: what
 * comes behind it is not looked at. Returns whether there was a frame to place.
 */
__noinline int place_frame(__u32 frames, __u64 sp, __u64 bp, __u64 java)
{
	struct scratch *s = this_scratch();
	__u64 cfa = sp;

	if (!s || s->start.placed == frames)
		return 0;
	if (bp != IN_JAVA) {
		if (bp >= sp && !(bp & 7) && (!java || bp < java))
			cfa = bp + 16;
		else
			cfa = java;
	}
	s->cfa[(frames - 1) & (MAX_USER_FRAMES - 1)] = cfa;
	s->start.placed = frames;
	return 1;
}

static __always_inline int end_walk(struct walk *w, __u8 why)
{
	w->end = why;
	return 1;
}

/* How many frames the walk wants. */
static __always_inline __u32 wanted(const struct walk *w)
{
	if (contexts == CONTEXT_WALK)
		return MAX_WALKED_FRAMES;
	return contexts == CONTEXT_CHAIN ? w->limit : MAX_USER_FRAMES;
}

/* Why a walk ends that has as many frames as it wants. */
static __always_inline __u8 enough(const struct walk *w)
{
	if (contexts == CONTEXT_WALK)
		return END_DEEP;
	return contexts == CONTEXT_CHAIN && w->limit < MAX_USER_FRAMES ? END_KNOWN : END_DEPTH;
}
