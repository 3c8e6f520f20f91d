/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One HotSpot frame at a time, on x86-64, without frame pointers. The rules were taken from HotSpot's own stack
 * walker (src/hotspot/cpu/x86/frame_x86.cpp) and checked against -XX:+PreserveFramePointer.
 *
 *   compiled     the caller's sp is sp + frame size; return address and saved rbp are the two words below it
 *   interpreted  based on rbp: return address, saved rbp, sender's sp, Method*, bytecode pointer
 *   stub         the first word up the stack that is a return address into the code cache
 *   entry        where native code called Java: the JavaCallWrapper holds the anchor of the Java frames before
 */
#pragma once

#include "leaf.bpf.h"
#include "return.bpf.h"
#include "segment.bpf.h"
#include "window.bpf.h"

#define INTERPRETER_REACH (1 << 20) /* bytes; the largest frame: 65,535 locals and an expression stack */
#define SHIFT_WORDS 8		    /* two registers, and what aligning a copy of 16 bytes takes */
#define THREAD_IN_JAVA 8	    /* JavaThreadState, the same in every release */

struct walk {
	const struct hotspot_process *vm;
	struct scratch *s;
	__u64 owner;	  /* as segment.owner */
	__u64 stack_base; /* 0 if unknown */
	__u64 anchor;	  /* the thread's JavaFrameAnchor, 0 if it is no JavaThread */
	__u64 pc, sp, bp;
	__u64 r13, rbx;	 /* of the sampled frame: bytecode pointer; Method* in an interpreter entry */
	__u64 native_to; /* native frames end below this address */
	__u32 pid;
	__u32 frames;
	__u32 java_frames;
	__u8 end;  /* enum walk_end */
	__u8 leaf; /* the registers are the sampled ones; otherwise pc is a return address */
	__u8 near; /* pc called a stub or native code, perhaps with arguments that it pushed */
	__u8 java; /* native walk: pc has reached the code cache */
	__u8 native; /* Java walk: the caller is native code */
};

/*
 * What is known of a method that the interpreter runs: its bytecodes. Cached like a segment, but only where probes tell
 * when classes go away: a method has no id. 0 if it makes no sense.
 */
static __always_inline struct segment *method_at(struct walk *w, __u64 method)
{
	__u64 tag = method | 1ull << 63;
	struct segment *g = &w->s->segments[segment_slot(tag)];
	__u16 size = 0;
	__u64 cm;

	if (g->tag == tag && g->owner == w->owner && (w->vm->flags & HOTSPOT_UNLOAD_EVENTS))
		return g;
	cm = read_word(method + w->vm->method_const);
	if (!cm || bpf_probe_read_user(&size, sizeof(size), (void *)(cm + w->vm->const_method_code_size)))
		return 0;
	g->frame = size;
	g->begin = cm + w->vm->const_method_size;
	g->live_id = 0;
	g->tag = tag;
	g->owner = w->owner;
	return g;
}

static __always_inline void push_frame(struct walk *w, __u64 frame)
{
	__u32 n = w->frames;

	if (n < MAX_USER_FRAMES) {
		w->s->sample.frames[n] = frame;
		w->frames = n + 1;
	}
}

static __always_inline void push_interpreted(struct walk *w, __u64 method, __u64 bci)
{
	push_frame(w, (__u64)FRAME_INTERP << FRAME_KIND_SHIFT | (method >> 3 & 0xfffffffffffull) << 16 | (bci & 0xffff));
}

static __always_inline void push_code(struct walk *w, __u64 kind, __u32 compile_id, __u64 pc)
{
	push_frame(w, kind << FRAME_KIND_SHIFT | (__u64)(compile_id & 0xfffffff) << 32 |
			      ((pc - w->vm->code_low) & 0xffffffff));
}

static __always_inline int end_walk(struct walk *w, __u8 why)
{
	w->end = why;
	return 1;
}

static __always_inline int go_to(struct walk *w, __u64 pc, __u64 sp, __u64 bp)
{
	if (sp <= w->sp)
		return end_walk(w, END_DIRECTION);
	w->pc = pc;
	w->sp = sp;
	w->bp = bp;
	w->leaf = 0;
	w->near = 0;
	return 0;
}

static __always_inline bool on_stack(const struct walk *w, __u64 v)
{
	return v > w->sp && v - w->sp < INTERPRETER_REACH;
}

/* To what stub_caller found, or to sp if that is further up. */
static __always_inline int go_to_stub_caller(struct walk *w, __u64 sp)
{
	const struct scratch *s = w->s;
	int err = go_to(w, s->caller.pc, sp > s->caller.sp ? sp : s->caller.sp, s->caller.bp);

	w->near = 1;
	return err;
}

/*
 * The interpreter's own code where no frame stands. Before it does, rbx is the Method*, r13 the caller's sp, which an
 * adapter may have left above the return address, and rbp the caller's. After it is gone, rbx is the caller's sp.
 */
static __always_inline int step_interpreter_edge(struct walk *w, bool entry)
{
	struct segment *m = 0;
	__u64 sp = 0;

	if (stub_caller(w->pid, w->sp, w->bp, 0))
		return end_walk(w, END_INTERPRETER);
	if (on_stack(w, w->r13)) {
		sp = w->r13;
		m = method_at(w, w->rbx);
	} else if (on_stack(w, w->rbx)) {
		sp = w->rbx;
	}
	if (entry || (m && m->frame))
		push_interpreted(w, w->rbx, FRAME_NO_BCI);
	else
		push_code(w, FRAME_STUB, 0, w->pc);
	return go_to_stub_caller(w, sp);
}

/* Whether a method is being entered from the interpreted frame at rbp: its return address is right below r13. */
static __always_inline bool at_method_entry(struct walk *w, __u64 caller)
{
	struct segment *m;

	if (!on_stack(w, w->r13) || (w->r13 & 7) || w->r13 > w->bp || w->rbx == caller)
		return false;
	if (!is_return(w->vm, read_word(w->r13 - 8)))
		return false;
	m = method_at(w, w->rbx);
	return m && m->frame;
}

/*
 * A frame of the interpreter, at rbp. Where it was sampled, r13 is the bytecode pointer, except in code that uses r13
 * for itself, where the frame holds the last one, and in the code around frames.
 */
static __always_inline int step_interpreted(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	struct segment *m = 0;
	__u64 method = 0, bcp, bci = FRAME_NO_BCI, bp = w->bp;

	if (bp >= w->sp && bp - w->sp < INTERPRETER_REACH && !(bp & 7) &&
	    !window_cover(w->s, w->stack_base, bp + vm->interp_bcp, 80)) {
		method = window_word(w->s, bp + vm->interp_method);
		if (in_code_cache(vm, window_word(w->s, bp + 8)))
			m = method_at(w, method);
	}
	if (m && m->frame) {
		bcp = window_word(w->s, bp + vm->interp_bcp);
		if (w->leaf && w->r13 - m->begin < m->frame)
			bcp = w->r13;
		else if (w->leaf && at_method_entry(w, method))
			return step_interpreter_edge(w, true);
		bci = bcp - m->begin;
		if (bci >= m->frame)
			m = 0; /* no frame of the interpreter, but something that looks like one */
	}
	if (!m)
		return w->leaf ? step_interpreter_edge(w, false) : end_walk(w, END_INTERPRETER);
	push_interpreted(w, method, bci);
	return go_to(w, window_word(w->s, bp + 8), window_word(w->s, bp + vm->interp_sender_sp), window_word(w->s, bp));
}

/*
 * How many words from at the first return address is whose own caller's, by the size of its frame, is in the code cache
 * as well: words that were left on the stack by calls of the past are not. -1 if none is.
 */
__noinline int find_fitting_return(__u32 pid, __u64 at, __u32 words)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();

	if (words > SCAN_WORDS)
		words = SCAN_WORDS;
	if (!vm || !s || bpf_probe_read_user(s->words, words * 8, (void *)at))
		return -1;
	for (__u32 i = 0; i < SCAN_WORDS; i++) {
		if (i >= words)
			break;
		if (!is_return(vm, s->words[i]) || segment_find(pid, s->words[i]))
			continue;
		if ((s->found.kind != BLOB_NMETHOD && s->found.kind != BLOB_NATIVE) ||
		    in_code_cache(vm, read_word(at + 8 * i + s->found.frame)))
			return i;
	}
	return -1;
}

/* Whether the return address at ra_at and its caller's are both in the code cache, as far as cached segments tell. */
static __always_inline bool frame_fits(struct walk *w, __u64 ra_at)
{
	__u64 ra = window_word(w->s, ra_at), tag = ra >> (w->vm->segment_shift & 31);
	const struct segment *g = &w->s->segments[segment_slot(tag)];

	if (!in_code_cache(w->vm, ra) || g->tag != tag || g->owner != w->owner)
		return false;
	return (g->kind != BLOB_NMETHOD && g->kind != BLOB_NATIVE) || in_code_cache(w->vm, read_word(ra_at + g->frame));
}

/* Words that C1 pushed for the call before pc: it pops them right after it. */
static __always_inline __u32 pushed_arguments(__u64 pc)
{
	__u8 code[8] = {};
	__u32 n = 0;

	bpf_probe_read_user(code, sizeof(code), (void *)pc);
	for (int i = 0; i < 8; i++) {
		if (code[i] == 0x41) /* of r8 to r15 */
			continue;
		if ((code[i] & 0xf8) != 0x58 || code[i] == 0x5d) /* pop, but not of rbp: that ends a frame */
			break;
		n++;
	}
	return n;
}

static __always_inline int step_compiled(struct walk *w, const struct segment *g)
{
	__u64 pc = w->pc, cfa = w->sp + g->frame, bp = w->bp, off = pc - g->begin;
	int rule = LEAF_FRAME, shift;

	if (w->leaf) {
		rule = leaf_rule(pc, g->begin, g->complete);
		if (rule == LEAF_RET_AT_SP || rule == LEAF_RET_AT_SP8)
			cfa = w->sp + (rule == LEAF_RET_AT_SP ? 8 : 16);
	} else if (off && (off == g->deopt || off == g->deopt_mh)) {
		__u64 orig = read_word(w->sp + g->orig_pc);

		if (in_code_cache(w->vm, orig))
			pc = orig;
	}
	push_code(w, FRAME_JIT, g->compile_id, pc);
	if (w->near)
		cfa += 8 * pushed_arguments(pc);
	if (window_cover(w->s, w->stack_base, cfa - 16, 16))
		return end_walk(w, END_READ);
	if (w->leaf && !frame_fits(w, cfa - 8)) {
		/* C2's string intrinsics push a few words onto a frame that stands and go on in compiled code. */
		shift = find_fitting_return(w->pid, cfa - 8, SHIFT_WORDS);
		if (shift > 0) {
			cfa += 8 * shift;
			if (window_cover(w->s, w->stack_base, cfa - 16, 16))
				return end_walk(w, END_READ);
		}
	}
	if (rule == LEAF_FRAME || rule == LEAF_RET_AT_SP8)
		bp = window_word(w->s, cfa - 16);
	return go_to(w, window_word(w->s, cfa - 8), cfa, bp);
}

/*
 * Native code called Java here. The wrapper it left on its stack holds the anchor of the Java frames before it. Only an
 * anchor that could be read and is empty makes this the first frame.
 */
static __always_inline int step_entry(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	__u64 anchor = 0, sp = 0, pc;

	if (bpf_probe_read_user(&anchor, sizeof(anchor), (void *)(w->bp + vm->entry_wrapper_offset)) ||
	    !on_stack(w, anchor))
		return end_walk(w, END_NO_ANCHOR);
	anchor += vm->wrapper_anchor;
	if (bpf_probe_read_user(&sp, sizeof(sp), (void *)(anchor + vm->anchor_sp)))
		return end_walk(w, END_NO_ANCHOR);
	if (!sp)
		return end_walk(w, END_ROOT);
	pc = read_word(anchor + vm->anchor_pc);
	return go_to(w, pc ? pc : read_word(sp - 8), sp, read_word(anchor + vm->anchor_fp));
}

/* bpf_loop callback: one frame of Java code. */
static long java_step(__u64 i, struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	struct segment *g;
	__u64 tag;
	int err;

	if (!vm)
		return end_walk(w, END_UNSUPPORTED); /* never: for the verifier */
	tag = w->pc >> (vm->segment_shift & 31);
	g = &w->s->segments[segment_slot(tag)];
	if (!w->leaf && w->pc == vm->call_stub_return)
		return step_entry(w);
	if (w->frames >= MAX_USER_FRAMES)
		return end_walk(w, END_DEPTH);

	if (!segment_valid(vm, g, w->pid, w->pc, tag, w->owner)) {
		err = segment_find(w->pid, w->pc);
		if (err)
			return end_walk(w, err);
		*g = w->s->found;
		g->tag = tag;
		g->owner = w->owner;
	}
	switch (g->kind) {
	case BLOB_NMETHOD:
	case BLOB_NATIVE:
		w->java_frames++;
		return step_compiled(w, g);
	case BLOB_INTERPRETER:
		w->java_frames++;
		return step_interpreted(w);
	}
	if (!w->leaf && (g->kind == BLOB_CONTINUATION || w->pc == vm->return_barrier))
		return end_walk(w, END_HEAP);
	if (w->leaf && w->anchor) {
		__u64 sp = read_word(w->anchor + vm->anchor_sp), pc;

		if (sp > w->sp) { /* libjvm called the stub, or it is about to call libjvm: then it is at the anchor, too */
			pc = read_word(w->anchor + vm->anchor_pc);
			pc = pc ? pc : read_word(sp - 8);
			if (blob_at(vm, pc) != blob_at(vm, w->pc))
				push_code(w, FRAME_STUB, 0, w->pc);
			return go_to(w, pc, sp, read_word(w->anchor + vm->anchor_fp));
		}
	}
	push_code(w, FRAME_STUB, 0, w->pc);
	if (w->leaf && !w->anchor && (vm->flags & HOTSPOT_TLS)) {
		w->native = 1; /* a thread of the VM: libjvm called the stub */
		return 1;
	}
	err = stub_caller(w->pid, w->sp, w->bp, g->kind == BLOB_STUB ? g->frame : 0);
	if (err)
		return end_walk(w, err);
	return go_to_stub_caller(w, 0);
}
