/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where the frame of the method is that calls SharedRuntime::dtrace_method_entry or _exit: HotSpot
 * does so from the method's own code, compiled or interpreted, with a plain call.
 */
#pragma once

#include "walk/codecache.bpf.h"
#include "call/exact/exactstate.bpf.h"
#include "record/sample.h"

/* Reads what is at pc, which is in the code cache. */
static __noinline int read_segment(struct exact_state *t, struct exact_segment *s, __u64 pc)
{
	__u32 pid = target;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	__u64 blob, name;

	s->pc = pc - t->code_low;
	s->epoch = t->code_epoch;
	s->frame = s->compile_id = 0;
	blob = vm && in_code_cache(vm, pc) ? blob_at(vm, pc) : 0;
	if (!blob)
		return 0;
	s->frame = read_int(blob + vm->blob_frame_size) * 8; /* words */
	name = read_word(blob + vm->blob_name);
	if (name && (name == vm->name_nmethod || name == vm->name_native))
		s->compile_id = read_int(blob + vm->blob_compile_id);
	if (name && name == vm->name_native)
		s->frame = FRAME_BY_BP; /* it has pushed the native method's arguments when it calls */
	return 0;
}

/* The code at pc, from what the thread remembers. It is forgotten whenever the VM unloads code. */
static __always_inline struct exact_segment *segment_of(struct exact_state *t, __u64 pc)
{
	__u32 offset = pc - t->code_low;
	struct exact_segment *s = &t->segments[(offset * 0x9e3779b1u >> 24) & (EXACT_SEGMENTS - 1)];

	if (s->pc != offset || s->epoch != t->code_epoch)
		read_segment(t, s, pc);
	return s;
}

static __always_inline bool interpreted(const struct exact_state *t, __u64 pc)
{
	return pc >= t->interpreter_low && pc < t->interpreter_high;
}

/*
 * Finds the frame that the event comes from. Its position stays the same while it lives, also if
 * the interpreter goes on with it in compiled code (which aligns it to 16 bytes) or if it is
 * deoptimised, and callees' are below it.
 */
static __always_inline void locate(struct exact_state *t)
{
	struct exact_segment *s;
	__u64 end;

	if (interpreted(t, t->from)) {
		t->position = (__u32)read_word(t->bp + t->sender_sp);
		t->return_at = t->bp + 8;
		t->saved_bp = t->bp;
		return;
	}
	s = segment_of(t, t->from);
	if (!s->frame || !s->compile_id) {
		t->position = 0;
		t->return_at = t->saved_bp = 0;
		count_exact(EXACT_UNPLACED, 1);
		return;
	}
	end = s->frame == FRAME_BY_BP ? t->bp + 16 : t->sp + s->frame;
	t->position = (__u32)end;
	t->return_at = end - 8;
	t->saved_bp = end - 16;
}

/* A frame (sample.h) for pc in compiled code or in a stub, 0 for any other. */
static __always_inline __u64 code_frame(struct exact_state *t, __u64 pc)
{
	__u64 offset = pc - t->code_low;
	__u32 id;

	if (offset >> 32)
		return 0;
	id = segment_of(t, pc)->compile_id;
	if (!id)
		return ((__u64)FRAME_STUB << FRAME_KIND_SHIFT) | offset;
	return ((__u64)FRAME_JIT << FRAME_KIND_SHIFT) | ((__u64)(id & 0xfffffff) << 32) | offset;
}

/* The frame of an interpreted caller whose rbp is bp. */
static __noinline __u64 interpreter_frame(__u64 bp)
{
	__u32 pid = target;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	__u64 method, bci;

	if (!vm)
		return 0;
	method = read_word(bp + vm->interp_method);
	bci = read_word(bp + vm->interp_bcp) - read_word(method + vm->method_const) - vm->const_method_size;
	if (bci >= FRAME_NO_BCI)
		bci = FRAME_NO_BCI;
	return ((__u64)FRAME_INTERP << FRAME_KIND_SHIFT) | ((method >> 3 & ((1ull << 44) - 1)) << 16) | bci;
}

/*
 * The call site of the frame that was just entered: its return address as a frame, 0 if that is not
 * known.
 */
static __always_inline __u64 call_site(struct exact_state *t)
{
	__u64 pc;

	if (!t->return_at)
		return 0;
	pc = read_word(t->return_at);
	if (interpreted(t, pc))
		return interpreter_frame(read_word(t->saved_bp));
	return code_frame(t, pc);
}
