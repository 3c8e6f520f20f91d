/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Modes that record less than whole stacks know frames by where they stand. This is what such a
 * mode knows of one sample. Only the object of these modes has it.
 */
#pragma once

#include "walk/frames.bpf.h"

/* How contexts are found, and whether every stack is also walked in full, to check the contexts. */
const volatile __u8 contexts = CONTEXT_CHAIN;
const volatile bool check_contexts = false;

struct context {
	__u64 depth_base; /* chain: what depths are counted from */
	__u64 tag;	  /* chain: of the link that is known once the record is out, 0 for none */
	__u64 link_tag;	  /* chain: as in the sample, behind the frames */
	__u32 taken;	  /* the sample has the user's stack */
	__u32 limit;	  /* of frames */
	__u32 kept;	  /* partial: the thread has a kept stack */
	__u32 kept_left;  /* partial: of its levels, outermost first, those that the walk has not passed */
	__u32 met;	  /* partial: frames in a row that are the kept ones */
	__u32 own, shared; /* partial: frames up to the kept ones, 0 if all; kept levels behind */
	__u32 placed;	  /* of the frames pushed so far, those whose place was noted */
	__u32 supposed;	  /* that is one, and by its frame pointer, which may lead elsewhere than to its caller */
	__u64 cfa[MAX_USER_FRAMES]; /* of sample.frames: canonical frame addresses, 0 for unknown */
};

/* key: as of scratches; the size is set at load */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct context);
} context_states SEC(".maps");

static __always_inline struct context *this_context(void)
{
	__u32 at = this_place();

	return bpf_map_lookup_elem(&context_states, &at);
}

#define IN_JAVA 1 /* no frame pointer */

/*
 * Notes the canonical frame address of the last one of that many frames, unless that is done. Of a
 * Java frame that is the stack pointer of its caller, which is known by then. A native frame is
 * taken to have set up its frame pointer; one above Java frames without, which begin at java, ends
 * there. The frame of a leaf call is placed again once its caller is known. Where a frame stands
 * must not depend on how far a walk goes: what comes behind it is not looked at. Returns whether
 * there was a frame to place.
 */
__noinline int place_frame(__u32 frames, __u64 sp, __u64 bp, __u64 java)
{
	struct context *c = this_context();
	__u64 cfa = sp;

	if (!c || (c->placed == frames && !(c->supposed && bp == IN_JAVA)))
		return 0;
	c->supposed = frames == 1 && bp != IN_JAVA && !java;
	if (bp != IN_JAVA) {
		if (bp >= sp && !(bp & 7) && (!java || bp < java))
			cfa = bp + 16;
		else
			cfa = java;
	}
	c->cfa[(frames - 1) & (MAX_USER_FRAMES - 1)] = cfa;
	c->placed = frames;
	return 1;
}
