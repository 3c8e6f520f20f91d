/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One HotSpot frame at a time, on x86-64, without frame pointers. The rules were taken from
 * HotSpot's own stack walker (src/hotspot/cpu/x86/frame_x86.cpp) and checked against
 * -XX:+PreserveFramePointer.
 *
 *   compiled     the caller's sp is sp + frame size; return address and saved rbp are the two words
 *                below it
 *   interpreted  based on rbp: return address, saved rbp, sender's sp, Method*, bytecode pointer
 *   stub         the first word up the stack that is a return address into the code cache
 *   entry        where native code called Java: the JavaCallWrapper holds the anchor of the Java
 *                frames before
 *   upcall       the same through java.lang.foreign: the stub's frame holds that anchor
 *   barrier      the callers are on the heap (stackchunk.bpf.h)
 */
#pragma once

#include "walk/frames.bpf.h"
#include "walk/interpreter.bpf.h"
#include "walk/prologue.bpf.h"

#define SHIFT_WORDS 8		    /* two registers, and what aligning a copy of 16 bytes takes */

static __always_inline void push_code(struct walk *w, __u64 kind, __u32 compile_id, __u64 pc)
{
	push_frame(w, kind << FRAME_KIND_SHIFT | (__u64)(compile_id & 0xfffffff) << 32 |
			      ((pc - w->vm->code_low) & 0xffffffff));
}

/* To the caller. */
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

/* To the caller that stub_caller or interpreter_frame found. */
static __always_inline int go_to_found(struct walk *w, __u64 near)
{
	int err = go_to(w, w->s->caller.pc, w->s->caller.sp, w->s->caller.bp);

	w->near = near;
	return err;
}

#define SPILL_REACH 512	 /* bytes: what loads 9 general registers and 32 others from the stack */
#define MAX_SPILL 4096	 /* bytes: 32 registers of 64, 16 of 8 and 8 masks are 2.3 KB */

/*
 * What 8 bytes of code take off the stack that are add rsp, N and the begin of a jmp; otherwise 0.
 */
__noinline int spilled_by(__u64 code)
{
	__u32 n = code >> 24;
	__u8 jump = code >> 56;

	if ((code & 0xffffff) == 0xc48348) {
		jump = n >> 8;
		n = (__u8)n < 0x80 ? (__u8)n : 0;
	} else if ((code & 0xffffff) != 0xc48148) {
		return 0;
	}
	return (jump == 0xe9 || jump == 0xeb) && n <= MAX_SPILL && !(n & 7) ? n : 0;
}

/*
 * What spilled_bytes looks for, in one piece of code. -1 if that cannot be read. The verifier
 * follows each round of a loop: so they are short.
 */
__noinline int spilled_here(__u64 at)
{
	struct scratch *s = this_scratch();
	int n;

	if (!s || bpf_probe_read_user(s->code, sizeof(s->code), (void *)at))
		return -1;
	for (int i = 0; i < SPILL_CHUNK; i++) {
		__u64 code = *(const __u64 *)(s->code + i);

		if ((code & 0xff00ff) != 0xc40048)
			continue;
		n = spilled_by(code);
		if (n)
			return n;
	}
	return 0;
}

/*
 * Bytes that compiled code has put below its frame for the call before pc: C2's slow paths of
 * barriers (ZGC's from JDK 14 on, G1's from 24 on) save the registers that are live, call the
 * collector, load them, and jump back. So add rsp, N comes behind pc, and right behind that a jmp;
 * an epilogue has a pop there. 0 if there is no such thing. Whoever asks must see whether that
 * fits, as this may be the code of the next slow path.
 */
static __always_inline int spilled_bytes(__u64 pc)
{
	int n = 0;

	for (__u32 done = 0; !n && done < SPILL_REACH; done += SPILL_CHUNK)
		n = spilled_here(pc + done);
	return n > 0 ? n : 0;
}

/* Whether the word at addr, where the caller of compiled code returns to, is in the code cache. */
static __always_inline bool leads_to_code(const struct hotspot_process *vm, __u64 addr)
{
	return in_code_cache(vm, read_word(addr));
}

/*
 * Whether by the size of a frame its caller is in the code cache. That one of the words, which are
 * at sp, returns into the frame's code.
 */
__noinline int return_fits(const struct hotspot_process *vm, __u32 word, __u64 sp)
{
	struct scratch *s = this_scratch();
	__u32 spilled;
	__u64 ra;

	if (!vm || !s || !s->start.scan_left || word >= SCAN_WORDS)
		return 0;
	ra = s->words[word];
	sp += 8 * word;
	spend_scan(s, FIT_WORDS);
	if (segment_find(vm, ra))
		return 0;
	sp += s->found.frame;
	if ((s->found.kind != BLOB_NMETHOD && s->found.kind != BLOB_NATIVE) || leads_to_code(vm, sp))
		return 1;
	spend_scan(s, SPILL_REACH / 8);
	spilled = spilled_bytes(ra);
	return spilled && leads_to_code(vm, sp + spilled);
}

/*
 * How many words from at the first return address is whose own caller's, by the size of its frame,
 * is in the code cache as well: words that were left on the stack by calls of the past are not. -1
 * if none is, or the budget ended.
 */
__noinline int find_fitting_return(const struct hotspot_process *vm, __u64 at, __u32 words)
{
	struct scratch *s = this_scratch();
	__u64 n = scannable(words), i = 0;
	int next;

	if (!vm || !s || bpf_probe_read_user(s->words, n * 8, (void *)at))
		return -1;
	n = take_scan(s, n);
	for (int round = 0; round < FIT_ROUNDS; round++) {
		next = return_among(vm, i, n);
		i = (__u32)(next ^ next >> 31);
		if (i >= n)
			break;
		if (next < 0)
			continue;
		if (return_fits(vm, i, at)) {
			s->start.scan_left += n - i - 1;
			return i;
		}
		i++;
	}
	return -1;
}

/*
 * Whether the return address at ra_at and its caller's are both in the code cache, as far as cached
 * segments show.
 */
static __always_inline bool frame_fits(struct walk *w, __u64 ra_at)
{
	__u64 ra = stackcopy_word(w->s, ra_at), owner = w->s->start.owner, next;
	__u32 tag = segment_tag(w->vm, ra);
	const struct segment *g = recent_at(w->s, ra_at + 8);

	if (g->tag != tag || g->serial != owner >> 32)
		g = segment_in(w->s, segment_place(w->s, tag, owner >> 32));
	if (!in_code_cache(w->vm, ra) || g->tag != tag || g->serial != owner >> 32 || g->epoch != (__u32)owner)
		return false;
	if (g->kind != BLOB_NMETHOD && g->kind != BLOB_NATIVE)
		return true;
	next = ra_at + g->frame;
	return in_code_cache(w->vm, stackcopy_has(w->s, next) ? stackcopy_word(w->s, next) : read_word(next));
}

/* Words that C1 pushed for the call before pc: it pops them right after it. */
__noinline int pushed_arguments(__u64 pc)
{
	__u8 code[8] = {};
	int n = 0;

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

/*
 * How many words are below a frame that stands, whose return address would be at ra_at without
 * them; 0 or less if none, or that is not known. Slow paths of barriers save registers there. C2's
 * string intrinsics push a few words and go on in compiled code: there is nothing to read that
 * from.
 */
__noinline int shifted_words(const struct hotspot_process *vm, __u64 ra_at, __u64 pc, int leaf)
{
	int spilled;

	if (!find_fitting_return(vm, ra_at, 1))
		return 0;
	spilled = spilled_bytes(pc);
	if (spilled > 0 && !find_fitting_return(vm, ra_at + spilled, 1))
		return spilled / 8;
	return leaf ? find_fitting_return(vm, ra_at, SHIFT_WORDS) : 0;
}

static __always_inline int step_compiled(struct walk *w, const struct segment *g)
{
	__u64 pc = w->pc, cfa = w->sp + g->frame, bp = w->bp;
	int rule = LEAF_FRAME, shift;

	if (w->leaf) {
		rule = leaf_rule(pc, w->vm->code_low + g->begin, g->complete);
		if (rule == LEAF_RET_AT_SP || rule == LEAF_RET_AT_SP8)
			cfa = w->sp + (rule == LEAF_RET_AT_SP ? 8 : 16);
	} else if ((__u32)(pc - w->vm->code_low) - g->begin >= g->handlers && deoptimised(w->vm, pc, w->sp)) {
		pc = w->s->caller.pc;
	}
	push_code(w, FRAME_JIT, g->compile_id, pc);
	if (w->near)
		cfa += 8 * (pushed_arguments(pc) & 15);
	if (stackcopy_cover(w->s, w->s->start.stack_to, cfa - 16, 16))
		return end_walk(w, END_READ);
	if ((w->leaf || w->near) && !frame_fits(w, cfa - 8)) {
		shift = shifted_words(w->vm, cfa - 8, pc, w->leaf != 0);
		if (shift > 0) {
			cfa += 8 * shift;
			if (stackcopy_cover(w->s, w->s->start.stack_to, cfa - 16, 16))
				return end_walk(w, END_READ);
		}
	}
	if (rule == LEAF_FRAME || rule == LEAF_RET_AT_SP8)
		bp = stack_pointer(w->s, cfa - 16, stackcopy_word(w->s, cfa - 16));
	return go_to(w, stackcopy_word(w->s, cfa - 8), cfa, bp);
}

/*
 * Native code called Java here, and the anchor of the Java frames before it is kept on its stack.
 * Only an anchor that could be read and is empty makes this the first frame.
 */
static __always_inline int go_to_kept_anchor(struct walk *w, __u64 anchor)
{
	const struct hotspot_process *vm = w->vm;
	__u64 sp = 0, pc;

	if (bpf_probe_read_user(&sp, sizeof(sp), (void *)(anchor + vm->anchor_sp)))
		return end_walk(w, END_NO_ANCHOR);
	if (!sp)
		return end_walk(w, END_ROOT);
	pc = read_word(anchor + vm->anchor_pc);
	return go_to(w, pc ? pc : read_word(sp - 8), sp, read_word(anchor + vm->anchor_fp));
}

/* The anchor is in the JavaCallWrapper that the call stub left on its stack. */
static __always_inline int step_entry(struct walk *w)
{
	__u64 wrapper = 0;

	if (bpf_probe_read_user(&wrapper, sizeof(wrapper), (void *)(w->bp + w->vm->entry_wrapper_offset)) ||
	    !on_stack(w->sp, wrapper))
		return end_walk(w, END_NO_ANCHOR);
	return go_to_kept_anchor(w, wrapper + w->vm->wrapper_anchor);
}

static __always_inline int step_interpreter(struct walk *w)
{
	int why = interpreter_frame(w->vm, w->sp, w->bp, w->leaf), edge = why > END_COUNT;

	if (edge)
		why = stub_caller(w->vm, w->sp, w->bp, 0) ? END_INTERPRETER :
			interpreter_edge(w->vm, w->pc, w->sp, why);
	if (why)
		return end_walk(w, why);
	push_frame(w, w->s->frame);
	return go_to_found(w, edge);
}

/*
 * To the frames that a virtual thread has on the heap, or behind those of a chunk to the next ones.
 */
static __always_inline int go_to_heap(struct walk *w)
{
	int why = heap_caller(w->vm, w->sp, w->frames);

	if (why)
		return end_walk(w, why);
	w->pc = w->s->caller.pc;
	w->sp = w->s->caller.sp;
	w->bp = w->s->caller.bp;
	return 0;
}

/*
 * Whether the callers of the last frame are on the heap: it returns to the barrier, or it is a
 * chunk's outermost one.
 */
static __always_inline bool at_heap(const struct walk *w)
{
	return (w->pc == w->vm->return_barrier) | (w->sp > w->s->start.heap_from);
}

/*
 * One frame of Java code. Returns 1 where its callers end: at the root, for a reason, or in native
 * code.
 */
static __always_inline int java_step(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	struct segment *g;
	int err;

	if (!vm)
		return end_walk(w, END_UNSUPPORTED); /* never: for the verifier */
	if (!w->leaf && w->pc == vm->call_stub_return)
		return step_entry(w);
	if (w->frames >= w->limit)
		return end_walk(w, END_DEEP);

	if (!w->leaf && at_heap(w))
		return go_to_heap(w);
	g = recent_segment(vm, w->s, w->pc, w->sp, w->s->start.walk + w->frames);
	if (!g)
		return end_walk(w, w->s->found_error);
	if (w->frames == w->s->start.top) {
		w->s->start.top_kind = g->kind;
		if (w->s->start.anchored && w->pc == read_word(vm->enter_return))
			return end_walk(w, END_THAW); /* the VM puts the anchor there while it copies frames */
	}
	switch (g->kind) {
	case BLOB_NMETHOD:
	case BLOB_NATIVE:
		w->s->start.java_frames++;
		return step_compiled(w, g);
	case BLOB_INTERPRETER:
		w->s->start.java_frames++;
		return step_interpreter(w);
	}
	if (g->kind == BLOB_CONTINUATION) {
		if (!w->leaf && vm->return_barrier && w->frames == w->s->start.top && !w->s->start.chunk_to) {
			w->s->start.thawing = 1;
			w->near = 0;
			return go_to_heap(w);
		}
		if (w->leaf)
			push_code(w, FRAME_STUB, 0, w->pc);
		/* this may be the barrier, if that is unknown */
		return end_walk(w, w->leaf || vm->return_barrier ? END_THAW : END_HEAP);
	}
	if (w->leaf && w->s->start.thread) {
		__u64 anchor = w->s->start.thread + vm->thread_anchor;
		__u64 sp = read_word(anchor + vm->anchor_sp), pc;

		/*
		 * libjvm called the stub, or it is about to call libjvm: then it is at the anchor,
		 * too
		 */
		if (sp > w->sp) {
			pc = read_word(anchor + vm->anchor_pc);
			pc = pc ? pc : read_word(sp - 8);
			if (!same_blob(w->vm, pc, w->pc))
				push_code(w, FRAME_STUB, 0, w->pc);
			return go_to(w, pc, sp, read_word(anchor + vm->anchor_fp));
		}
	}
	push_code(w, FRAME_STUB, 0, w->pc);
	if (w->leaf && !w->s->start.thread && (vm->flags & HOTSPOT_TLS)) {
		w->native = 1; /* a thread of the VM: libjvm called the stub */
		return 1;
	}
	if (g->kind == BLOB_UPCALL)
		return g->frame ? go_to_kept_anchor(w, w->sp + g->frame) : end_walk(w, END_NO_ANCHOR);
	err = stub_caller(w->vm, w->sp, w->bp, g->kind == BLOB_STUB ? g->frame : 0);
	if (err)
		return end_walk(w, err);
	return go_to_found(w, 1);
}
