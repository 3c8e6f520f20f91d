/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A whole user stack, innermost frame first, into scratch.sample. What kind of thread it is and where its pc stands
 * decide how:
 *
 *   pc in the code cache            Java frames from the registers
 *   JavaThread with an anchor       native frames by frame pointer, then Java frames from the anchor
 *   JavaThread in a leaf call       native code called without an anchor: the return address is near on the stack
 *   anything else                   native frames by frame pointer
 */
#pragma once

#include "native.bpf.h"
#include "thread.bpf.h"

/* The user registers at the tick, whatever the architecture calls them. */
struct user_registers {
	__u64 pc, sp, bp, r13, rbx;
};

/* Java frames from w's registers to the end. */
static __always_inline void walk_java(struct walk *w)
{
	w->end = END_DEPTH;
	bpf_loop(2 * MAX_USER_FRAMES, java_step, w, 0); /* entry frames take a turn and push nothing */
}

/* To the return address into the code cache that is i words up the stack from sp. */
static __always_inline bool go_to_java_caller(struct walk *w, int i, __u64 sp, __u64 bp)
{
	if (i < 0 || i >= SCAN_WORDS)
		return false;
	w->frames = 1;
	w->pc = w->s->words[i];
	w->bp = i > 0 && bp == sp + 8 * (__u64)i - 8 ? w->s->words[i - 1] : bp;
	w->sp = sp + 8 * (__u64)i + 8;
	w->leaf = 0;
	return true;
}

/*
 * From native code that Java called without an anchor. libjvm keeps frame pointers; libm and the vDSO do not, but their
 * frames are small. If rbp leads to Java at once, it may still be that of a caller's caller: C1 leaves it alone too. Then
 * a return address that fits and is nearer comes first.
 */
static __always_inline bool find_java_caller(struct walk *w, __u64 sp, __u64 bp)
{
	bpf_loop(NATIVE_LEAVES, native_step, w, 0);
	if (!w->java)
		return go_to_java_caller(w, find_return(w->pid, sp, SCAN_WORDS), sp, bp);
	if (w->frames == 1)
		go_to_java_caller(w, find_fitting_return(w->pid, sp, (w->sp - 8 - sp) / 8), sp, bp);
	return true;
}

/* From native code of a JavaThread to its Java frames, if there are any. */
static __always_inline void walk_native_to_java(struct walk *w, const struct java_thread *t)
{
	const struct hotspot_process *vm = w->vm;
	__u64 sp = read_word(w->anchor + vm->anchor_sp), leaf_sp = w->sp, leaf_bp = w->bp, pc;

	push_native(w, w->pc);
	if (sp > w->sp) {
		w->native_to = sp;
		bpf_loop(NATIVE_LEAVES, native_step, w, 0);
		pc = read_word(w->anchor + vm->anchor_pc);
		w->pc = pc ? pc : read_word(sp - 8);
		w->sp = sp;
		w->bp = read_word(w->anchor + vm->anchor_fp);
		w->leaf = 0;
		walk_java(w);
	} else if (read_int(t->thread + vm->thread_state) == THREAD_IN_JAVA) {
		if (!find_java_caller(w, leaf_sp, leaf_bp)) {
			w->end = END_NO_ANCHOR;
			return;
		}
		w->near = 1;
		walk_java(w);
	} else {
		w->end = END_DEPTH;
		bpf_loop(MAX_USER_FRAMES, native_step, w, 0);
		if (w->java)
			walk_java(w);
	}
}

/* Fills frames, user_frames, end and flags of the sample in s. vm is 0 where the process has no attached VM. */
static __always_inline __u32 walk_user(struct scratch *s, struct task_struct *task, const struct hotspot_process *vm,
				       const struct user_registers *regs, __u32 pid, __u32 tid)
{
	struct walk w = {
		.s = s, .vm = vm, .pc = regs->pc, .sp = regs->sp, .bp = regs->bp,
		.r13 = regs->r13, .rbx = regs->rbx, .pid = pid, .leaf = 1,
	};
	struct java_thread *t = 0;

	s->window_len = 0;
	s->window_low = 0;
	if (vm) {
		__u32 slot = vm->slot;
		struct epochs *e = bpf_map_lookup_elem(&epochs, &slot);

		s->sample.flags |= SAMPLE_ATTACHED;
		s->sample.attachment = vm->serial;
		s->sample.class_epoch = e ? e->classes : 0;
		w.owner = (__u64)vm->serial << 32 | (e ? e->code : 0);
		t = current_java_thread(vm, s, task, tid);
		if (t) {
			s->sample.flags |= SAMPLE_JAVA_THREAD;
			w.stack_base = t->stack_base;
			w.anchor = t->thread + vm->thread_anchor;
		}
	}
	if (vm && in_code_cache(vm, w.pc)) {
		walk_java(&w);
	} else if (t) {
		walk_native_to_java(&w, t);
	} else {
		push_native(&w, w.pc);
		w.native = 1;
	}
	if (w.native) {
		w.end = END_DEPTH;
		bpf_loop(MAX_USER_FRAMES, native_step, &w, 0);
		if (w.java)
			walk_java(&w);
	}
	if (w.java_frames)
		s->sample.flags |= SAMPLE_JAVA_FRAMES;
	s->sample.end = w.end;
	s->sample.user_frames = w.frames;
	return w.frames;
}
