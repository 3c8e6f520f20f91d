/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the walker needs to know of the code around a pc, from the CodeBlob's header. It is cached
 * per CPU, first by where a frame stands, then by its pc. A cached answer is good for one code
 * epoch: the unload probes count that up before code memory is given back. Then, and every time
 * where there are no probes, the blob and the compile id that stand there now are compared: ids are
 * never given out twice.
 */
#pragma once

#include "walk/codecache.bpf.h"
#include "kernel/scratch.bpf.h"

static __always_inline __u32 blob_kind(const struct hotspot_process *vm, __u64 name)
{
	if (!name)
		return BLOB_NONE;
	if (name == vm->name_nmethod)
		return BLOB_NMETHOD;
	if (name == vm->name_native)
		return BLOB_NATIVE;
	if (name == vm->name_interpreter)
		return BLOB_INTERPRETER;
	if (name == vm->name_vtable)
		return BLOB_VTABLE;
	if (name == vm->name_adapter)
		return BLOB_ADAPTER;
	if (name == vm->name_continuation)
		return BLOB_CONTINUATION;
	if (name == vm->name_upcall)
		return BLOB_UPCALL;
	return BLOB_STUB;
}

/* Reads the beginning of the blob into scratch.header, where blob_word and blob_int find it. */
static __always_inline void read_header(struct scratch *s, __u64 blob)
{
	s->header_len = bpf_probe_read_user(s->header, sizeof(s->header), (void *)blob) ? 0 : sizeof(s->header);
}

/* A word of the blob that was read last. */
static __always_inline __u64 blob_word(struct scratch *s, __u64 blob, __u32 field)
{
	asm volatile("" : "+r"(field));
	if (field + 8ull > s->header_len || (field & 7))
		return read_word(blob + field);
	return s->header[field >> 3 & (HEADER_WORDS - 1)];
}

static __always_inline __u32 blob_int(struct scratch *s, __u64 blob, __u32 field)
{
	if (field & 3)
		return read_int(blob + field);
	return blob_word(s, blob, field & ~7u) >> (field & 4) * 8;
}

/* Offset of a deopt handler from the code's begin; 0 if there is none. */
static __always_inline __u32 deopt_offset(const struct hotspot_process *vm, struct scratch *s, __u64 blob, __u64 begin,
					  __u32 field)
{
	__u64 handler;

	if (vm->flags & HOTSPOT_DEOPT_OFFSET) {
		__u32 off = blob_int(s, blob, field);

		return off == ~0u ? 0 : blob + off - begin;
	}
	handler = blob_word(s, blob, field);
	return handler ? handler - begin : 0;
}

/*
 * Where the frame of a stub for upcalls has its anchor, from the stack pointer; 0 if unknown. A
 * reference has more than 32 bits, a number of bytes has not.
 */
static __always_inline __u32 upcall_anchor(const struct hotspot_process *vm, struct scratch *s, __u64 blob)
{
	__u32 at = vm->blob_upcall_data;

	if (!at)
		return 0;
	if (vm->flags & HOTSPOT_UPCALL_BEHIND)
		at += blob_word(s, blob, at) >> 32 ? 8 : 16;
	return blob_int(s, blob, at) + vm->upcall_anchor;
}

/* Takes words that are read of what describes code from the sample's budget. */
static __always_inline void spend_lookup(struct scratch *s, __u32 words)
{
	__u32 left = s->start.lookup_left;

	s->start.lookup_left = left > words ? left - words : 0;
	s->start.unclocked += words;
}

/* As blob_at, at the expense of the sample's budget; 0 if that is spent. */
__noinline __u64 blob_around(const struct hotspot_process *vm, __u64 pc)
{
	struct scratch *s = this_scratch();
	__u32 reads = 1;
	__u64 blob;

	if (!vm || !s || !s->start.lookup_left)
		return 0;
	blob = find_blob(vm, pc, &reads);
	spend_lookup(s, reads);
	return blob;
}

/* The nearer one of the deopt handlers; ~0 if there is none. */
static __always_inline __u32 nearest_handler(const struct segment_rest *rest)
{
	__u32 a = rest->deopt ? rest->deopt : ~0u, b = rest->deopt_mh ? rest->deopt_mh : ~0u;

	return a < b ? a : b;
}

#define BLOB_WORDS 11 /* that segment_find reads of a blob at most */

/* Reads the blob around pc into scratch.found. Returns 0 or why that failed (enum walk_end). */
__noinline int segment_find(const struct hotspot_process *vm, __u64 pc)
{
	struct scratch *s = this_scratch();
	__u32 reads = BLOB_WORDS, complete;
	struct segment_rest *rest;
	struct segment *f;
	__u64 blob, begin;

	if (!vm || !s)
		return END_READ;
	if (!s->start.lookup_left)
		return END_SCAN;
	count_walk(SEGMENT_MISSES, 1);
	if (!in_code_cache(vm, pc))
		return END_NO_CODE;
	blob = find_blob(vm, pc, &reads);
	spend_lookup(s, reads);
	if (!blob)
		return END_NO_BLOB;

	read_header(s, blob);
	f = &s->found;
	rest = &s->found_rest;
	f->kind = blob_kind(vm, blob_word(s, blob, vm->blob_name));
	if (f->kind == BLOB_NONE)
		return END_NO_BLOB;
	if (vm->flags & HOTSPOT_CODE_OFFSET)
		begin = blob + blob_int(s, blob, vm->blob_code_begin);
	else
		begin = blob_word(s, blob, vm->blob_code_begin);
	f->begin = begin - vm->code_low;
	f->frame = blob_int(s, blob, vm->blob_frame_size) * 8; /* words */
	complete = blob_int(s, blob, vm->blob_frame_complete);
	if (vm->flags & HOTSPOT_FRAME_COMPLETE_16)
		complete &= 0xffff;
	f->complete = complete < 0xffff ? complete : 0xffff; /* -1 for never */
	f->compile_id = rest->blob = rest->deopt = rest->deopt_mh = rest->orig_pc = 0;
	f->handlers = ~0u;
	if (f->kind == BLOB_UPCALL)
		f->frame = upcall_anchor(vm, s, blob);
	if (f->kind == BLOB_NMETHOD || f->kind == BLOB_NATIVE) {
		rest->blob = blob - vm->code_low;
		f->compile_id = blob_int(s, blob, vm->blob_compile_id);
		rest->deopt = deopt_offset(vm, s, blob, begin, vm->blob_deopt_handler);
		if (vm->flags & HOTSPOT_DEOPT_MH)
			rest->deopt_mh = deopt_offset(vm, s, blob, begin, vm->blob_deopt_mh_handler);
		rest->orig_pc = blob_int(s, blob, vm->blob_orig_pc);
		f->handlers = nearest_handler(rest);
	}
	return 0;
}

/* A place of the cache. */
static __always_inline struct segment *segment_in(struct scratch *s, __u32 place)
{
	asm volatile("" : "+r"(place)); /* the compiler knows its bounds, the verifier does not */
	return &s->segments[place & (SEGMENTS - 1)];
}

static __always_inline struct segment_rest *rest_in(struct scratch *s, __u32 place)
{
	asm volatile("" : "+r"(place));
	return &s->rest[place & (SEGMENTS - 1)];
}

/* Which segment of the code cache an address is in, which must be in it. */
static __always_inline __u32 segment_tag(const struct hotspot_process *vm, __u64 pc)
{
	return (pc - vm->code_low) >> (vm->segment_shift & 31);
}

/*
 * The first place of the set that the segment with that tag belongs to. Segments side by side are
 * in sets side by side.
 */
static __always_inline __u32 segment_set(__u32 tag, __u32 serial)
{
	return (tag + serial * 977) * WAYS & (SEGMENTS - WAYS);
}

/* Whether the place has the segment with that tag, of that VM. */
static __always_inline bool segment_at(struct scratch *s, __u32 place, __u32 tag, __u32 serial)
{
	const struct segment *g = segment_in(s, place);

	return g->tag == tag && g->serial == serial;
}

/*
 * Where the segment with that tag has its place, if it has one; not a branch: the verifier would
 * follow both.
 */
static __always_inline __u32 segment_place(struct scratch *s, __u32 tag, __u32 serial)
{
	__u32 set = segment_set(tag, serial);

	return set + segment_at(s, set + 1, tag, serial);
}

/*
 * Whether the blob around pc is still the one at that offset, and has the compile id. The id alone
 * would not show it: a freed block keeps its header while a new one is cut off its end.
 */
__noinline int segment_same(const struct hotspot_process *vm, __u64 pc, __u32 at, __u32 id)
{
	__u64 blob;

	if (!vm || !at)
		return 0;
	blob = blob_around(vm, pc);
	return blob == vm->code_low + at && read_int(blob + vm->blob_compile_id) == id;
}

/* Whether two addresses are in the same blob. */
__noinline int same_blob(const struct hotspot_process *vm, __u64 a, __u64 b)
{
	return vm && blob_around(vm, a) == blob_around(vm, b);
}

/* Puts what segment_find found into the cache, for the segment with that tag. */
static __always_inline void segment_keep(struct scratch *s, __u32 tag)
{
	__u32 serial = s->start.owner >> 32, place = segment_place(s, tag, serial);

	if (!segment_at(s, place, tag, serial)) { /* the older one of two makes room */
		*segment_in(s, place | 1) = *segment_in(s, place);
		*rest_in(s, place | 1) = *rest_in(s, place);
	}
	s->found.tag = tag;
	s->found.serial = serial;
	s->found.epoch = s->start.owner;
	*segment_in(s, place) = s->found;
	*rest_in(s, place) = s->found_rest;
}

#define RECHECK 64 /* one frame in so many trusts no cached segment */

/*
 * Whether a cached segment still holds without a look at the code: no code went away since. Now and
 * then it does not anyhow: what was read of memory that was free by then, from an address that a
 * stack had from before, is wrong as soon as other code is put there, and no event announces that.
 * turn is another one for each frame of a walk, so that a deep stack of one segment is not looked
 * up at once.
 */
static __always_inline bool trusted(const struct hotspot_process *vm, const struct segment *g, __u64 owner, __u32 turn)
{
	return g->epoch == (__u32)owner && (vm->flags & HOTSPOT_UNLOAD_EVENTS) && turn % RECHECK;
}

/*
 * What is known of the code around pc, into scratch.found: by the cache, if that holds. Returns 0
 * or an enum walk_end. The rest is not read, as it is another cache line; it is at segment_place.
 */
__noinline int segment_of(const struct hotspot_process *vm, __u64 pc, __u32 turn)
{
	struct scratch *s = this_scratch();
	struct segment *g;
	__u32 tag, place;
	__u64 owner;
	int err;

	if (!vm || !s)
		return END_READ;
	owner = s->start.owner;
	tag = segment_tag(vm, pc);
	place = segment_place(s, tag, owner >> 32);
	g = segment_in(s, place);
	if (in_code_cache(vm, pc) && segment_at(s, place, tag, owner >> 32) &&
	    (trusted(vm, g, owner, turn) || segment_same(vm, pc, rest_in(s, place)->blob, g->compile_id))) {
		g->epoch = owner;
		s->found = *g;
		return 0;
	}
	err = segment_find(vm, pc);
	if (!err)
		segment_keep(s, tag);
	return err;
}

/* Where the segment of a frame that stands at sp is cached. */
static __always_inline struct segment *recent_at(struct scratch *s, __u64 sp)
{
	return &s->recent[sp / RECENT_STEP & (RECENT - 1)];
}

/*
 * The same, of a frame that stands at sp. Most frames of a stack stand where they stood at this
 * CPU's previous sample, so they are looked up by their place first. What one stack needs is then
 * together in few pages, while its segments are spread over the whole cache. Returns 0 if there is
 * none; scratch.found_error says why.
 */
static __always_inline struct segment *recent_segment(const struct hotspot_process *vm, struct scratch *s, __u64 pc,
						      __u64 sp, __u32 turn)
{
	struct segment *g = recent_at(s, sp);
	__u32 tag = segment_tag(vm, pc);
	__u64 owner = s->start.owner;

	if (in_code_cache(vm, pc) && g->tag == tag && g->serial == owner >> 32 && trusted(vm, g, owner, turn))
		return g;
	s->found_error = segment_of(vm, pc, turn);
	if (s->found_error)
		return 0;
	*g = s->found;
	return g;
}

/*
 * Whether the frame at sp returns to a deopt handler of its code, at pc, and keeps a pc in the code
 * cache, which is then in scratch.caller.pc.
 */
__noinline int deoptimised(const struct hotspot_process *vm, __u64 pc, __u64 sp)
{
	struct scratch *s = this_scratch();
	struct segment_rest *rest;
	__u32 off;

	if (!vm || !s || segment_of(vm, pc, 1))
		return 0;
	off = pc - vm->code_low - s->found.begin;
	rest = rest_in(s, segment_place(s, segment_tag(vm, pc), s->start.owner >> 32));
	if (!off || (off != rest->deopt && off != rest->deopt_mh))
		return 0;
	s->caller.pc = read_word(sp + rest->orig_pc);
	return in_code_cache(vm, s->caller.pc);
}
