/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * CallerChaining (Inoue and Nakatani, OOPSLA 2009, section 6): the leaf, its depth, the call site
 * and the caller's depth are a link, and a link is enough where user space knows what was above it.
 * Whether it does is kept here as a tag per link: a link without one is walked to the root and gets
 * its tag; of the others one in chain_rate.every is walked, too, so that user space sees whether it
 * is still right. Where one link has several contexts user space clears LINK_STEADY in its tag:
 * then it is walked every time.
 */
#pragma once

#include "sample/stackdepth.bpf.h"
#include "sample/frameposition.bpf.h"

#define LINK_FRAMES 2
#define LINK_CHUNK 512 /* bytes of the stack that are copied at once: most links fit into one */

/* tags, direct-mapped; 0.5 MB */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KNOWN_LINKS);
	__type(key, __u32);
	__type(value, __u64);
} known_links SEC(".maps");

/* key: hotspot_process.slot, or MAX_ATTACHED */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ATTACHED + 1);
	__type(key, __u32);
	__type(value, struct chain_rate);
} chain_rates SEC(".maps");

/* Depth of frame i of the sample, 0 if it is unknown. */
static __always_inline __u32 depth_of(const struct context *c, __u32 i)
{
	return i < MAX_USER_FRAMES ? depth_below(c->depth_base, c->cfa[i]) : 0;
}

/* What of a sampled frame says in which method it is: of a stub or native code nothing does. */
static __always_inline __u64 method_of_leaf(__u64 frame)
{
	switch (frame >> FRAME_KIND_SHIFT) {
	case FRAME_JIT:
		return frame >> 32;
	case FRAME_INTERP:
		return frame >> 16;
	}
	return frame >> FRAME_KIND_SHIFT;
}

/* The tag of the first two frames of the sample, with LINK_STEADY. */
static __always_inline __u64 link_tag(const struct scratch *s, const struct context *c, __u64 owner)
{
	__u64 h = mix(owner, method_of_leaf(s->sample.frames[0]));

	h = mix(h, (__u64)depth_of(c, 0) << 32 | depth_of(c, 1));
	return mix(h, s->sample.frames[1]) | LINK_STEADY;
}

/* Where the tag of a link has its place. */
static __always_inline __u64 *link_slot(__u64 tag)
{
	__u32 i = tag >> LINK_SLOT_SHIFT & (KNOWN_LINKS - 1);

	return bpf_map_lookup_elem(&known_links, &i);
}
