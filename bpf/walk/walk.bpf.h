/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A whole user stack, innermost frame first, into scratch.sample. What kind of thread it is and
 * where its pc stands decide how:
 *
 *   pc in the code cache            Java frames from the registers
 *   JavaThread with an anchor       native frames, then Java frames from the anchor
 *   JavaThread in a leaf call       native code called without an anchor: the return address is
 *                                   near on the stack
 *   thread of CPython               native frames, and Python's from their list (cpython.bpf.h)
 *   anything else                   native frames
 */
#pragma once

#include "walk/native.bpf.h"
#include "walk/javathread.bpf.h"

/* Leave out frames of native code that a thread called from Java. */
const volatile bool java_only = false;

/* To the return address into the code cache that is i words up the stack from sp. */
static __always_inline bool go_to_java_caller(struct walk *w, int i, __u64 sp, __u64 bp)
{
	barrier_var(i); /* the compiler knows what a search may return, the verifier does not */
	if (i < 0 || i >= SCAN_WORDS)
		return false;
	w->frames = 1;
	w->pc = w->s->words[i];
	w->bp = i > 0 && bp == sp + 8 * (__u64)i - 8 ? w->s->words[i - 1] : bp;
	w->sp = sp + 8 * (__u64)i + 8;
	w->leaf = 0;
	return true;
}

/* To the Java frames, from where the registers stand. */
static __always_inline int go_to_java(struct walk *w)
{
	w->phase = PHASE_JAVA;
	w->end = END_DEPTH;
	w->s->start.top = w->frames;
	return 0;
}

/* To the Java frames that the thread left through its anchor. */
static __always_inline int go_to_anchor(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	__u64 anchor, pc;

	if (!vm)
		return 1; /* never: for the verifier */
	anchor = w->s->start.thread + vm->thread_anchor;
	pc = read_word(anchor + vm->anchor_pc);
	w->pc = pc ? pc : read_word(w->s->start.native_to - 8);
	w->sp = w->s->start.native_to;
	w->bp = read_word(anchor + vm->anchor_fp);
	w->leaf = 0;
	w->s->start.anchored = 1;
	return go_to_java(w);
}

/*
 * From native code that Java called without an anchor. libjvm keeps frame pointers; libm and the
 * vDSO do not, but their frames are small. If rbp leads to Java at once, it may still be that of a
 * caller's caller: C1 leaves it alone too. Then a return address that fits and is nearer comes
 * first.
 */
static __always_inline int go_to_leaf_caller(struct walk *w)
{
	__u64 sp = w->s->regs.sp;

	if (!w->java) {
		if (!go_to_java_caller(w, find_fitting_return(w->vm, sp, SCAN_WORDS), sp, w->s->regs.bp))
			return end_walk(w, w->s->start.scan_left ? END_NO_ANCHOR : END_SCAN);
	} else if (w->frames == 1 && !led_by_table(w->s)) {
		go_to_java_caller(w, find_fitting_return(w->vm, sp, (w->sp - 8 - sp) / 8), sp, w->s->regs.bp);
	}
	w->near = 1;
	return go_to_java(w);
}

/* To the frames of Python that are left behind native ones: 1 if there are none. */
static __always_inline int go_to_python(struct walk *w)
{
	if (!is_cpython(w->vm) || !python_left())
		return 1;
	w->phase = PHASE_PYTHON;
	w->end = END_DEPTH;
	return 0;
}

/* One frame of Python. Where the interpreter's loop was entered with it, native frames follow. */
static __always_inline int python_step(struct walk *w)
{
	int end = python_next(w->vm);

	if (w->frames >= w->limit)
		return end_walk(w, END_DEEP);
	if (w->s->frame)
		push_frame(w, w->s->frame);
	if (end)
		return end_walk(w, end);
	w->phase = w->s->python.native ? PHASE_NATIVE : PHASE_PYTHON;
	return 0;
}

/* What comes behind native frames. */
static __always_inline int leave_native(struct walk *w)
{
	switch (w->phase) {
	case PHASE_ANCHOR:
		return go_to_anchor(w);
	case PHASE_LEAF_CALL:
		return go_to_leaf_caller(w);
	}
	if (w->java)
		return go_to_java(w);
#ifndef CONTEXTS
	return go_to_python(w);
#else
	return 1;
#endif
}

/* One frame. Returns 1 where there are no more. */
static __always_inline int step(struct walk *w)
{
	if (w->phase == PHASE_JAVA) {
		if (!java_step(w))
			return 0;
		if (!w->native)
			return 1;
		w->native = 0;
		w->phase = PHASE_NATIVE;
		return 0;
	}
#ifndef CONTEXTS
	if (w->phase == PHASE_PYTHON)
		return python_step(w);
#endif
	if (w->phase != PHASE_NATIVE && w->frames > NATIVE_LEAVES) {
		w->end = END_DEPTH;
		return leave_native(w);
	}
	return native_step(w) ? leave_native(w) : 0;
}

/* bpf_loop callback: a step. There is one loop, or the verifier follows each. */
static long walk_step(__u64 i, struct walk *w)
{
	return late(w->s) ? end_walk(w, END_TIME) : step(w);
}

/* How a walk begins from native code of a JavaThread. */
static __always_inline void begin_native(struct walk *w)
{
	const struct hotspot_process *vm = w->vm;
	__u64 thread = w->s->start.thread, sp = read_word(thread + vm->thread_anchor + vm->anchor_sp);

	if (sp > w->sp) {
		w->s->start.native_to = sp;
		w->phase = PHASE_ANCHOR;
	} else if (read_int(thread + vm->thread_state) == vm->thread_in_java) {
		w->phase = PHASE_LEAF_CALL;
	}
}

/*
 * Notes in the sample and in scratch.start which VM's thread it is of. vm is 0 where the process
 * has no attached VM.
 */
static __always_inline void begin_walks(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task,
					__u32 tid)
{
	struct java_thread *t;
	struct epochs *e;
	__u32 slot;

	s->start.owner = s->start.thread = s->start.stack_base = 0;
	s->python.first = s->python.outer = s->python.waits = s->python.state = 0;
	s->start.tid = tid;
	s->start.task = (__u64)task;
	begin_time();
	s->start.scan_left = SCAN_BUDGET;
	s->start.lookup_left = LOOKUP_BUDGET;
	s->start.chunk = STACKCOPY_CHUNK;
	if (!vm)
		return;
	slot = vm->slot;
	e = bpf_map_lookup_elem(&epochs, &slot);
	s->sample.flags |= SAMPLE_ATTACHED;
	s->sample.attachment = vm->serial;
	s->sample.class_epoch = e ? e->classes : 0;
	s->sample.header.stopped = e ? e->stopped : 0;
	s->start.owner = (__u64)vm->serial << 32 | (e ? e->code : 0);
#ifndef CONTEXTS
	if (is_cpython(vm)) {
		begin_python(vm, s, task, tid);
		return;
	}
#endif
	t = current_java_thread(vm, s, task, tid, in_code_cache(vm, s->regs.pc) ? s->regs.thread : 0);
	if (t) {
		s->sample.flags |= SAMPLE_JAVA_THREAD;
		s->start.thread = t->thread;
		s->start.stack_base = t->stack_base;
	}
}

/*
 * Before Linux 6.8 the verifier follows the body of a loop once, and takes what it finds there for
 * what is always there: branches that are not taken at the first step are gone. So nothing that
 * changes from step to step may be known.
 */
static __always_inline void begin_anyhow(struct walk *w)
{
	w->frames = any(w->s, w->frames);
	w->end = any(w->s, w->end);
	w->leaf = any(w->s, w->leaf);
	w->near = any(w->s, w->near);
	w->phase = any(w->s, w->phase);
	w->java = any(w->s, w->java);
	w->native = any(w->s, w->native);
}

/*
 * How many frames of a walk are in the sample. Where it ended between the innermost and the
 * outermost ones, the latter are none.
 */
static __always_inline __u32 kept_frames(struct walk *w)
{
	w->s->sample.header.left_out = 0;
	if (w->frames <= MAX_USER_FRAMES)
		return w->frames;
	if (w->end == END_DEEP || w->end == END_DEPTH)
		return LEAF_FRAMES;
	w->s->sample.header.left_out = w->frames - MAX_USER_FRAMES;
	return MAX_USER_FRAMES;
}

/*
 * Whether the frames of a virtual thread that were found on the heap are copies of those on its
 * stack: it is giving up its carrier, and the VM has made the copies. The innermost one is of the
 * frame that called the VM, or of its caller. Otherwise it is of one that has called Java, from
 * another place.
 */
static __always_inline bool freezing(const struct scratch *s, __u32 frames)
{
	__u32 first = s->start.on_heap, top = s->start.top & (MAX_USER_FRAMES - 1), kind = s->start.top_kind;
	bool called = kind == BLOB_NATIVE || kind == BLOB_STUB;
	__u64 copy;

	if (!first || first >= frames)
		return false;
	/* another frame has taken the place of the copy: it may have been one */
	if (first >= LEAF_FRAMES && frames > MAX_USER_FRAMES)
		return called || s->start.anchored;
	copy = s->sample.frames[first & (MAX_USER_FRAMES - 1)];
	if (s->start.anchored && copy == s->sample.frames[top])
		return true;
	return called && copy == s->sample.frames[(top + 1) & (MAX_USER_FRAMES - 1)];
}

/* How many frames are left of a walk without those on the heap. */
static __always_inline __u32 frames_on_stack(const struct scratch *s, __u32 frames)
{
	__u32 first = s->start.on_heap;

	return frames > MAX_USER_FRAMES && first > LEAF_FRAMES ? LEAF_FRAMES : first;
}

/* Begins a walk from the sample's registers. Native code that they are in is the first frame. */
static __always_inline void begin_walk(struct walk *w, struct scratch *s, const struct hotspot_process *vm, __u32 limit)
{
	*w = (struct walk){
		.s = s, .vm = vm, .pc = s->regs.pc, .sp = s->regs.sp, .bp = s->regs.bp,
		.limit = limit, .leaf = 1, .end = END_DEPTH,
	};
	s->start.walk++;
	s->start.scan_before = s->start.scan_left;
	s->start.redefines = 0;
	s->start.native_to = 0;
	s->start.java_frames = 0;
	s->python.next = s->python.first;
	s->python.then = s->python.outer;
	s->python.waiting = s->python.waits;
	s->python.rest = 0;
	if (unmounted(s))
		w->leaf = 0;
	else
		stand_in(s, 0);
	s->start.on_heap = s->start.thawing = s->start.top = s->start.top_kind = s->start.anchored = 0;
	s->stackcopy_len = 0;
	s->stackcopy_low = 0;
	if (!vm || !in_code_cache(vm, w->pc)) {
		w->phase = PHASE_NATIVE;
		if (vm && s->start.thread)
			begin_native(w);
		if (java_only && w->phase == PHASE_ANCHOR)
			go_to_anchor(w);
#ifndef CONTEXTS
		else if (is_cpython(vm) && in_python_loop(vm, w->pc))
			w->phase = PHASE_PYTHON;
#endif
		else
			push_native(w, w->pc);
#ifndef CONTEXTS
		if (is_cpython(vm) && w->phase == PHASE_NATIVE && called_by_python_loop(vm)) {
			w->phase = PHASE_PYTHON;
			w->pc = s->caller.pc;
			w->sp = s->caller.sp;
			w->bp = s->caller.bp;
			w->leaf = 0;
		}
#endif
	}
}

/* Whether the thread may have frames of Python, which were not found. */
static __always_inline bool python_lost(const struct walk *w)
{
	return is_cpython(w->vm) && (w->s->python.state & PYTHON_LOST);
}

/* Fills user_frames, end and flags of the sample, which has the frames. */
static __always_inline void finish_walk(struct walk *w)
{
	struct scratch *s = w->s;

	if (s->start.late && (w->end != END_ROOT || python_lost(w))) { /* a search that the clock ended found nothing */
		w->end = END_TIME;
		count_walk(WALKS_CUT, 1);
	} else if (python_lost(w)) {
		w->end = END_SCAN;
	}
	end_unwinding(s);
	if (s->start.java_frames)
		s->sample.flags |= SAMPLE_JAVA_FRAMES;
	if (s->start.scan_left != s->start.scan_before)
		count_scanned(s->start.scan_before - s->start.scan_left);
	if (freezing(s, w->frames)) {
		w->frames = frames_on_stack(s, w->frames);
		w->end = END_THAW;
	}
	barrier(); /* the number of frames is on the stack, where the verifier keeps no track of it */
	s->sample.end = w->end;
	s->sample.user_frames = kept_frames(w);
}

/* Walks the whole stack that begins at scratch.regs. With CONTEXTS nobody does. */
static __noinline __attribute__((unused)) void walk_user(struct scratch *s, const struct hotspot_process *vm)
{
	struct walk w;

	begin_walk(&w, s, vm, MAX_WALKED_FRAMES);
	if (!vm && find_maybe_caller())
		push_frame(&w, s->start.maybe_caller);
	begin_anyhow(&w);
	bpf_loop(3 * MAX_WALKED_FRAMES, walk_step, &w, 0); /* entry frames take a turn and push nothing */
	finish_walk(&w);
}
