/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames of HotSpot's interpreter, on x86-64. A frame is based on rbp: return address, saved rbp, sender's sp, Method*,
 * bytecode pointer. What is here is verified once, apart from the loop over frames, and leaves its answers in scratch.
 */
#pragma once

#include "return.bpf.h"
#include "window.bpf.h"

#define INTERPRETER_ENTRY (END_COUNT + 1)
#define INTERPRETER_EDGE (END_COUNT + 2)
#define INTERPRETER_REACH (1 << 20) /* bytes; the largest frame: 65,535 locals and an expression stack */

static __always_inline bool on_stack(__u64 sp, __u64 v)
{
	return v > sp && v - sp < INTERPRETER_REACH;
}

/*
 * What is known of a method that the interpreter runs: its bytecodes. Cached like a segment, but only where probes tell
 * when classes go away: a method has no id. 0 if it makes no sense.
 */
static __always_inline struct segment *method_at(const struct hotspot_process *vm, struct scratch *s, __u64 method)
{
	__u64 tag = method | 1ull << 63;
	struct segment *g = &s->segments[segment_slot(tag)];
	__u16 size = 0;
	__u64 cm;

	if (g->tag == tag && g->owner == s->start.owner && (vm->flags & HOTSPOT_UNLOAD_EVENTS))
		return g;
	cm = read_word(method + vm->method_const);
	if (!cm || bpf_probe_read_user(&size, sizeof(size), (void *)(cm + vm->const_method_code_size)))
		return 0;
	g->frame = size;
	g->begin = cm + vm->const_method_size;
	g->live_id = 0;
	g->tag = tag;
	g->owner = s->start.owner;
	return g;
}

static __always_inline __u64 interpreted_frame(__u64 method, __u64 bci)
{
	return (__u64)FRAME_INTERP << FRAME_KIND_SHIFT | (method >> 3 & 0xfffffffffffull) << 16 | (bci & 0xffff);
}

/* Whether a method is being entered from the interpreted frame at bp: its return address is right below r13. */
static __always_inline bool at_method_entry(const struct hotspot_process *vm, struct scratch *s, __u64 sp, __u64 bp,
					    __u64 caller)
{
	__u64 r13 = s->regs.r13, rbx = s->regs.rbx;
	struct segment *m;

	if (!on_stack(sp, r13) || (r13 & 7) || r13 > bp || rbx == caller)
		return false;
	if (!is_return(vm, read_word(r13 - 8)))
		return false;
	m = method_at(vm, s, rbx);
	return m && m->frame;
}

/*
 * A frame of the interpreter, at bp. Where it was sampled, r13 is the bytecode pointer, except in code that uses r13 for
 * itself, where the frame holds the last one, and in the code around frames. Returns 0, with the frame and its caller in
 * scratch; INTERPRETER_ENTRY or INTERPRETER_EDGE where there is none yet, or not any more; or an enum walk_end.
 */
__noinline int interpreter_frame(__u32 pid, __u64 sp, __u64 bp, __u32 leaf)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	__u64 method = 0, bcp, bci = FRAME_NO_BCI, r13;
	struct scratch *s = this_scratch();
	struct segment *m = 0;

	if (!vm || !s)
		return END_READ;
	r13 = s->regs.r13;
	if (bp >= sp && bp - sp < INTERPRETER_REACH && !(bp & 7) &&
	    !window_cover(s, s->start.stack_base, bp + vm->interp_bcp, 80)) {
		method = window_word(s, bp + vm->interp_method);
		if (in_code_cache(vm, window_word(s, bp + 8)))
			m = method_at(vm, s, method);
	}
	if (m && m->frame) {
		bcp = window_word(s, bp + vm->interp_bcp);
		if (leaf && r13 - m->begin < m->frame)
			bcp = r13;
		else if (leaf && at_method_entry(vm, s, sp, bp, method))
			return INTERPRETER_ENTRY;
		bci = bcp - m->begin;
		if (bci >= m->frame)
			m = 0; /* no frame of the interpreter, but something that looks like one */
	}
	if (!m)
		return leaf ? INTERPRETER_EDGE : END_INTERPRETER;
	s->frame = interpreted_frame(method, bci);
	s->caller.pc = window_word(s, bp + 8);
	s->caller.sp = window_word(s, bp + vm->interp_sender_sp);
	s->caller.bp = window_word(s, bp);
	return 0;
}

/*
 * The interpreter's own code where no frame stands, behind stub_caller. Before it does, rbx is the Method*, r13 the
 * caller's sp, which an adapter may have left above the return address, and rbp the caller's. After it is gone, rbx is
 * the caller's sp. Returns 0, with the frame and its caller in scratch.
 */
__noinline int interpreter_edge(__u32 pid, __u64 pc, __u64 sp, __u32 why)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	struct segment *m = 0;
	__u64 caller = 0;

	if (!vm || !s)
		return END_READ;
	if (on_stack(sp, s->regs.r13)) {
		caller = s->regs.r13;
		m = method_at(vm, s, s->regs.rbx);
	} else if (on_stack(sp, s->regs.rbx)) {
		caller = s->regs.rbx;
	}
	if (why == INTERPRETER_ENTRY || (m && m->frame))
		s->frame = interpreted_frame(s->regs.rbx, FRAME_NO_BCI);
	else
		s->frame = (__u64)FRAME_STUB << FRAME_KIND_SHIFT | ((pc - vm->code_low) & 0xffffffff);
	if (caller > s->caller.sp)
		s->caller.sp = caller;
	return 0;
}
