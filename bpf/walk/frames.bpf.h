/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A walk of a user stack: where it stands, and the frames that it has pushed. */
#pragma once

#include "kernel/scratch.bpf.h"

/* Which rule finds the next frame. */
enum walk_phase {
	PHASE_JAVA,
	PHASE_NATIVE,	 /* native.bpf.h, to the root or to Java */
	PHASE_ANCHOR,	 /* the same; then Java goes on at the anchor */
	PHASE_LEAF_CALL, /* the same to Java, which called without an anchor */
	PHASE_PYTHON,	 /* in the list of Python's frames */
};

/*
 * Flags are words of their own: of those, the verifier keeps track. With bytes it takes ten times
 * as long. frames is the upper half of a word: of that it keeps no track. Otherwise it follows the
 * walk for every number of frames, and Linux 6.12 does not come to an end.
 */
struct walk {
	const struct hotspot_process *vm;
	struct scratch *s;
	__u64 pc, sp, bp;
	__u32 limit; /* of frames: at so many the walk ends with END_DEEP */
	__u32 frames;
	__u8 end;  /* enum walk_end */
	__u64 leaf; /* the registers are the sampled ones; otherwise pc is a return address */
	__u64 near; /* pc called a stub or native code, perhaps with arguments that it pushed */
	__u64 phase; /* enum walk_phase */
	__u64 java; /* native walk: pc has reached the code cache */
	__u64 native; /* Java walk: the caller is native code */
};

#define LEAF_FRAMES (MAX_USER_FRAMES - ROOT_FRAMES)

/*
 * Of a whole walk that goes deeper than there is room, the innermost frames stay, and those behind
 * them go round in the rest of the room: at the end it has the outermost ones.
 */
static __always_inline void push_frame(struct walk *w, __u64 frame)
{
	__u32 n = w->frames, at = n;

	if (n >= MAX_USER_FRAMES) {
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

static __always_inline int end_walk(struct walk *w, __u8 why)
{
	w->end = why;
	return 1;
}

/* What follows n words behind the sample's header, 0 if there is no room for so many. */
static __always_inline void *behind_frames(struct scratch *s, __u64 n)
{
	asm volatile("" : "+r"(n)); /* what is compared is what is used */
	if (n > MAX_FRAMES + 1)
		return 0;
	return (void *)s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) + 8 * n;
}
