/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the walker needs to know of the code around a pc, from the CodeBlob's header and cached per CPU. A cached answer
 * is good until its owner changes: the unload probes count up the code epoch before code memory is given back. Then, and
 * every time where there are no probes, the blob and the compile id that stand there now are compared: ids are never
 * given out twice.
 */
#pragma once

#include "codecache.bpf.h"
#include "scratch.bpf.h"

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
	return BLOB_STUB;
}

/* Offset of a deopt handler from the code's begin; 0 if there is none. */
static __always_inline __u32 deopt_offset(const struct hotspot_process *vm, __u64 blob, __u64 begin, __u32 field)
{
	__u64 handler;

	if (vm->flags & HOTSPOT_DEOPT_OFFSET) {
		__u32 off = read_int(blob + field);

		return off == ~0u ? 0 : blob + off - begin;
	}
	handler = read_word(blob + field);
	return handler ? handler - begin : 0;
}

/* Takes words that are read of what describes code from the sample's budget. */
static __always_inline void spend_lookup(struct scratch *s, __u32 words)
{
	__u32 left = s->start.lookup_left;

	s->start.lookup_left = left > words ? left - words : 0;
}

#define BLOB_WORDS 9 /* that segment_find reads of a blob at most */

/* Reads the blob around pc into scratch.found. Returns 0 or why that failed (enum walk_end). */
__noinline int segment_find(__u32 pid, __u64 pc)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	__u32 reads = BLOB_WORDS;
	struct segment *f;
	__u64 blob;

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

	f = &s->found;
	f->kind = blob_kind(vm, read_word(blob + vm->blob_name));
	if (f->kind == BLOB_NONE)
		return END_NO_BLOB;
	if (vm->flags & HOTSPOT_CODE_OFFSET)
		f->begin = blob + read_int(blob + vm->blob_code_begin);
	else
		f->begin = read_word(blob + vm->blob_code_begin);
	f->frame = read_int(blob + vm->blob_frame_size) * 8; /* words */
	f->complete = read_int(blob + vm->blob_frame_complete);
	if (vm->flags & HOTSPOT_FRAME_COMPLETE_16)
		f->complete &= 0xffff;
	f->compile_id = f->deopt = f->deopt_mh = f->orig_pc = 0;
	f->live_id = 0;
	if (f->kind == BLOB_NMETHOD || f->kind == BLOB_NATIVE) {
		f->live_id = blob + vm->blob_compile_id;
		f->compile_id = read_int(f->live_id);
		f->deopt = deopt_offset(vm, blob, f->begin, vm->blob_deopt_handler);
		if (vm->flags & HOTSPOT_DEOPT_MH)
			f->deopt_mh = deopt_offset(vm, blob, f->begin, vm->blob_deopt_mh_handler);
		f->orig_pc = read_int(blob + vm->blob_orig_pc);
	}
	return 0;
}

static __always_inline __u32 segment_slot(__u64 tag)
{
	return (__u32)((tag * 0x9e3779b97f4a7c15ull) >> 44) & (SEGMENTS - 1);
}

/*
 * Whether the blob around pc is still the one whose compile id was read as id at live_id. The id alone would not show it:
 * a freed block keeps its header while a new one is cut off its end.
 */
__noinline int segment_same(__u32 pid, __u64 pc, __u64 live_id, __u32 id)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	__u32 reads = 1;
	__u64 blob;

	if (!vm || !s || !live_id || !s->start.lookup_left)
		return 0;
	blob = find_blob(vm, pc, &reads);
	spend_lookup(s, reads);
	return blob + vm->blob_compile_id == live_id && read_int(live_id) == id;
}

/* Whether two addresses are in the same blob. */
__noinline int same_blob(__u32 pid, __u64 a, __u64 b)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);

	return vm && blob_at(vm, a) == blob_at(vm, b);
}

#define RECHECK 64 /* one frame in so many trusts no cached segment */

/*
 * Whether a cached segment still holds. When code went away since it was read, or may have, the blob and
 * the compile id that stand there now decide. Now and then they do anyhow: what was read of memory that was free by then, from
 * an address that a stack had from before, is wrong as soon as other code is put there: no event announces it. turn is another
 * one for each frame of a walk, so that a deep stack of one segment is not looked up at once.
 */
static __always_inline bool segment_valid(const struct hotspot_process *vm, struct segment *g, __u32 pid, __u64 pc,
					  __u64 tag, __u64 owner, __u32 turn)
{
	if (g->tag != tag || (g->owner ^ owner) >> 32)
		return false;
	if (g->owner == owner && (vm->flags & HOTSPOT_UNLOAD_EVENTS) && turn % RECHECK)
		return true;
	if (!segment_same(pid, pc, g->live_id, g->compile_id))
		return false;
	g->owner = owner;
	return true;
}
