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

#include "segment.bpf.h"
#include "window.bpf.h"

#define INTERPRETER_REACH (1 << 20) /* bytes; the largest frame: 65,535 locals and an expression stack */
#define THREAD_IN_JAVA 8	    /* JavaThreadState, the same in every release */

struct walk {
	const struct hotspot_process *vm;
	struct scratch *s;
	__u64 owner;	  /* as segment.owner */
	__u64 stack_base; /* 0 if unknown */
	__u64 pc, sp, bp;
	__u64 r13, rbx;	 /* of the sampled frame: bytecode pointer; Method* in an interpreter entry */
	__u64 native_to; /* native frames end below this address */
	__u32 pid;
	__u32 frames;
	__u32 java_frames;
	__u8 end;  /* enum walk_end */
	__u8 leaf; /* the registers are the sampled ones; otherwise pc is a return address */
	__u8 java; /* native walk: pc has reached the code cache */
};

/* Where the return address is, seen from a sampled pc in compiled code. */
enum leaf_rule {
	LEAF_FRAME,	 /* the frame stands: by its size */
	LEAF_RET_AT_SP,	 /* not yet built, or torn down */
	LEAF_RET_AT_SP8, /* only rbp is on the stack */
};

/*
 * A fifth of all samples in compiled code fall into prologues and epilogues. What was and what will be executed
 * around pc tells how much of the frame stands (C1 and C2 of JDK 8 to 25 differ only in the poll before ret).
 */
__noinline int leaf_rule(__u64 pc, __u64 begin, __u32 complete)
{
	__u8 bytes[32] = {};
	__u8 *o = bytes + 16; /* o[0] is at pc */

	bpf_probe_read_user(bytes, sizeof(bytes), (void *)(pc - 16));
	if (pc < begin + complete) {
		if (o[0] == 0x55) /* push rbp ahead */
			return LEAF_RET_AT_SP;
		if (o[-1] == 0x55) /* just done */
			return LEAF_RET_AT_SP8;
		if (o[-1] == 0xec && o[-2] == 0x8b && o[-3] == 0x48) /* mov rbp, rsp done */
			return LEAF_RET_AT_SP8;
		/* sub rsp, N done, mov [rsp + M], rbp ahead */
		if (o[0] == 0x48 && o[1] == 0x89 && o[2] == 0x6c && o[3] == 0x24 &&
		    ((o[-4] == 0x48 && o[-2] == 0xec) || (o[-7] == 0x48 && o[-5] == 0xec)))
			return LEAF_FRAME;
		/* cmp [r15 + M], N; jne: the entry barrier, which follows the frame */
		if (pc + 16 >= begin + complete && (o[-1] == 0x75 || o[-2] == 0x0f || (o[0] == 0x0f && o[1] == 0x85) ||
						    (o[0] == 0x41 && o[1] == 0x81 && o[2] == 0x7f)))
			return LEAF_FRAME;
		return LEAF_RET_AT_SP;
	}
	if (o[0] == 0xc3) /* ret */
		return LEAF_RET_AT_SP;
	if (o[0] == 0x5d) /* pop rbp */
		return LEAF_RET_AT_SP8;
	/* JDK 16+: cmp rsp, [r15 + M]; ja slow: the poll between pop rbp and ret */
	if (o[0] == 0x49 && o[1] == 0x3b && (o[2] == 0x67 || o[2] == 0xa7) && o[-1] == 0x5d)
		return LEAF_RET_AT_SP;
	if (o[0] == 0x0f && o[1] == 0x87 && o[6] == 0xc3)
		return LEAF_RET_AT_SP;
	return LEAF_FRAME;
}

/* Whether v follows a call into the code cache, or points into the interpreter, which pushes its own addresses. */
static __always_inline bool is_return(const struct hotspot_process *vm, __u64 v)
{
	__u8 b[8] = {};

	if (!in_code_cache(vm, v))
		return false;
	if (v >= vm->interpreter_low && v < vm->interpreter_high)
		return true;
	if (bpf_probe_read_user(b, 6, (void *)(v - 6)))
		return false;
	return b[1] == 0xe8 ||			     /* call rel32 */
	       b[0] == 0xff || b[3] == 0xff || b[4] == 0xff; /* call [r + d32], [r + d8], r */
}

/* Index of the first word from sp that is a return address into the code cache, or -1. */
__noinline int find_return(__u32 pid, __u64 sp, __u32 words)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();

	if (!vm || !s)
		return -1;
	if (words > SCAN_WORDS)
		words = SCAN_WORDS;
	if (bpf_probe_read_user(s->words, words * 8, (void *)sp)) {
		if (words < 4 || bpf_probe_read_user(s->words, 32, (void *)sp))
			return -1;
		words = 4;
	}
	for (__u32 i = 0; i < SCAN_WORDS; i++) {
		if (i >= words)
			break;
		if (is_return(vm, s->words[i]))
			return i;
	}
	return -1;
}

/*
 * The caller of a stub. What a stub pushes is small and holds no code addresses, so the first return address up the
 * stack is its own; rbp was saved right below it if rbp points there. A stub with a frame of known size is taken by
 * that, unless it was sampled before the frame stood. Returns 0 or an enum walk_end; the caller is in scratch.
 */
__noinline int stub_caller(__u32 pid, __u64 sp, __u64 bp, __u32 frame)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	__u64 ra;
	int i;

	if (!vm || !s)
		return END_READ;
	if ((__s32)frame > 0) {
		ra = read_word(sp + frame - 8);
		if (in_code_cache(vm, ra)) {
			s->caller.pc = ra;
			s->caller.sp = sp + frame;
			s->caller.bp = read_word(sp + frame - 16);
			return 0;
		}
	}
	i = find_return(pid, sp, 24);
	if (i < 0 || i >= SCAN_WORDS)
		return END_NO_CODE;
	s->caller.pc = s->words[i];
	s->caller.sp = sp + 8 * (__u64)i + 8;
	s->caller.bp = i > 0 && bp + 8 == sp + 8 * (__u64)i ? s->words[i - 1] : bp;
	return 0;
}

/* What is known of a method that the interpreter runs: its bytecodes. Cached like a segment; 0 if it makes no sense. */
static __always_inline struct segment *method_at(struct walk *w, __u64 method)
{
	__u64 tag = method | 1ull << 63;
	struct segment *g = &w->s->segments[segment_slot(tag)];
	__u64 cm;

	if (g->tag == tag && g->owner == w->owner)
		return g;
	cm = read_word(method + w->vm->method_const);
	if (!cm)
		return 0;
	g->frame = read_int(cm + w->vm->const_method_code_size) & 0xffff;
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
	return 0;
}

/*
 * The interpreter's own code before the frame stands or after it is gone: rbx is the Method* (before), r13 the
 * caller's sp, rbp still the caller's.
 */
static __always_inline int step_interpreter_entry(struct walk *w)
{
	struct segment *m = method_at(w, w->rbx);
	int err = stub_caller(w->pid, w->sp, w->bp, 0);

	if (err)
		return end_walk(w, END_INTERPRETER);
	if (m && m->frame)
		push_interpreted(w, w->rbx, FRAME_NO_BCI);
	else
		push_code(w, FRAME_STUB, 0, w->pc);
	return go_to(w, w->s->caller.pc, w->s->caller.sp, w->s->caller.bp);
}

static __always_inline int step_interpreted(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	struct segment *m = 0;
	__u64 method = 0, bcp = 0, bci, bp = w->bp;
	bool sane = bp >= w->sp && bp - w->sp < INTERPRETER_REACH && !(bp & 7) &&
		    !window_cover(w->s, w->stack_base, bp + vm->interp_bcp, 80);

	if (sane) {
		method = window_word(w->s, bp + vm->interp_method);
		bcp = w->leaf ? w->r13 : window_word(w->s, bp + vm->interp_bcp);
		m = method_at(w, method);
	}
	if (w->leaf && (!m || (m->frame && bcp - m->begin >= m->frame))) {
		/* r13 is no bytecode of this method: entry or exit code, or slow code that uses r13 for itself. */
		if (!m || !in_code_cache(vm, window_word(w->s, bp + 8)) || method_at(w, w->rbx) != m)
			return step_interpreter_entry(w);
		bcp = window_word(w->s, bp + vm->interp_bcp);
		if (bcp - m->begin >= m->frame)
			bcp = 0;
	}
	if (!m)
		return end_walk(w, END_INTERPRETER);
	bci = bcp - m->begin;
	if (!m->frame || (w->leaf && bci >= m->frame))
		bci = FRAME_NO_BCI; /* a native method, or not known */
	else if (bci >= m->frame)
		return end_walk(w, END_INTERPRETER);
	push_interpreted(w, method, bci);
	return go_to(w, window_word(w->s, bp + 8), window_word(w->s, bp + vm->interp_sender_sp), window_word(w->s, bp));
}

static __always_inline int step_compiled(struct walk *w, const struct segment *g)
{
	__u64 pc = w->pc, cfa = w->sp + g->frame, bp = w->bp, off = pc - g->begin;
	int rule = LEAF_FRAME;

	if (w->leaf) {
		rule = leaf_rule(pc, g->begin, g->complete);
		if (rule != LEAF_FRAME)
			cfa = w->sp + (rule == LEAF_RET_AT_SP ? 8 : 16);
	} else if (off && (off == g->deopt || off == g->deopt_mh)) {
		pc = read_word(w->sp + g->orig_pc);
	}
	push_code(w, FRAME_JIT, g->compile_id, pc);
	if (window_cover(w->s, w->stack_base, cfa - 16, 16))
		return end_walk(w, END_READ);
	if (rule != LEAF_RET_AT_SP)
		bp = window_word(w->s, cfa - 16);
	return go_to(w, window_word(w->s, cfa - 8), cfa, bp);
}

/* Native code called Java here. The wrapper it left on the stack holds the anchor of the Java frames before it. */
static __always_inline int step_entry(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	__u64 anchor = read_word(w->bp + vm->entry_wrapper_offset) + vm->wrapper_anchor;
	__u64 sp = read_word(anchor + vm->anchor_sp), pc;

	if (!sp)
		return end_walk(w, END_ROOT);
	pc = read_word(anchor + vm->anchor_pc);
	return go_to(w, pc ? pc : read_word(sp - 8), sp, read_word(anchor + vm->anchor_fp));
}

/* bpf_loop callback: one frame of Java code. */
static long java_step(__u64 i, struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	__u64 tag = w->pc >> (vm->segment_shift & 31);
	struct segment *g = &w->s->segments[segment_slot(tag)];
	int err;

	if (w->frames >= MAX_USER_FRAMES)
		return end_walk(w, END_DEPTH);
	if (!w->leaf && w->pc == vm->call_stub_return)
		return step_entry(w);

	if (!segment_valid(vm, g, tag, w->owner)) {
		err = segment_find(w->pid, w->pc);
		if (err)
			return end_walk(w, err);
		*g = w->s->found;
		g->tag = tag;
		g->owner = w->owner;
	}
	w->java_frames++;
	switch (g->kind) {
	case BLOB_NMETHOD:
	case BLOB_NATIVE:
		return step_compiled(w, g);
	case BLOB_INTERPRETER:
		return step_interpreted(w);
	}
	if (!w->leaf && (g->kind == BLOB_CONTINUATION || w->pc == vm->return_barrier))
		return end_walk(w, END_HEAP);
	push_code(w, FRAME_STUB, 0, w->pc);
	err = stub_caller(w->pid, w->sp, w->bp, g->kind == BLOB_STUB ? g->frame : 0);
	if (err)
		return end_walk(w, err);
	return go_to(w, w->s->caller.pc, w->s->caller.sp, w->s->caller.bp);
}
