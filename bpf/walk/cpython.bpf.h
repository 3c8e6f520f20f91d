/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames of CPython. The interpreter keeps them in a list of its own, from the thread's state on:
 * what is on the thread's stack are activations of the interpreter's loop, each of which runs one
 * or more of them. A walk takes those frames from the list where it meets an activation, and the
 * rest of the list where it comes to no other one: native code of most builds has no frame
 * pointers. Walks for CONTEXTS go by where frames are on the stack: they have none of Python's.
 *
 *   PyThreadState.current_frame -> frame -> previous -> ...   frame -> code object and instruction
 *
 * A thread that runs code of a subinterpreter has a state in each of the two. Frames of the newer
 * interpreter come first, and those of the other one follow.
 *
 * Everything that is read here was written by the target: what is read has fixed bounds, and each
 * frame is a step of the walk, which has a bound of steps and of time. So has the search for the
 * thread's state.
 */
#pragma once

#include "record/cpython.h"
#include "walk/interpreter.bpf.h"
#include "walk/walkdeadline.bpf.h"

#define PYTHON_THREADS 2048 /* interpreters and threads that are looked at for the current one */
/* for how long a thread that was not found is not looked for again */
#define PYTHON_NONE_NS 100000000
#define SYS_FUTEX 202

static __always_inline bool is_cpython(const struct hotspot_process *vm)
{
#ifdef CONTEXTS
	return false;
#else
	return vm && (vm->flags & PROCESS_CPYTHON);
#endif
}

/*
 * The innermost frame of a thread's state, 0 if it runs nothing. With CPYTHON_CFRAME there is a
 * structure even then.
 */
static __always_inline __u64 innermost_frame(const struct cpython_process *py, __u64 thread)
{
	__u64 frame = read_word(thread + py->thread_frame);

	return frame && (py->form & CPYTHON_CFRAME) ? read_word(frame + py->cframe_frame) : frame;
}

/* What is known of the interpreters of a thread, in struct java_thread. */
enum python_state {
	PYTHON_SEVERAL = 1 << 0, /* there is more than one */
	PYTHON_LOST = 1 << 1,	 /* the search for the thread's state did not come to an end */
};

/* A search for the states of a thread: of the first two that run something. */
struct python_search {
	const struct cpython_process *py;
	struct scratch *s;
	__u64 self, interpreter, thread;
	__u32 runs;	/* such states that were found */
	__u32 complete; /* there is no other one */
};

/*
 * bpf_loop callback: one thread, or the way to the next interpreter. A state that runs something
 * counts before one that does not.
 */
static long search_thread(__u64 i, struct python_search *x)
{
	const struct cpython_process *py = x->py;
	struct scratch *s = x->s;
	__u64 at;

	if (late(s))
		return 1;
	if (!x->thread) {
		if (i) {
			at = read_word(x->interpreter + py->interpreter_next);
			if (at == x->interpreter)
				return 1;
			x->interpreter = at;
		}
		if (!x->interpreter) {
			x->complete = 1;
			return 1;
		}
		x->thread = read_word(x->interpreter + py->interpreter_threads);
		return 0;
	}
	at = x->thread;
	x->thread = read_word(at + py->thread_next);
	if (read_word(at + py->thread_id) != x->self)
		return 0;
	if (!innermost_frame(py, at)) {
		if (!s->start.found_thread)
			s->start.found_thread = at;
		return 0;
	}
	if (x->runs++) {
		s->python.outer = at;
		x->complete = 1;
		return 1;
	}
	s->start.found_thread = at;
	if (s->python.state & PYTHON_SEVERAL)
		return 0;
	x->complete = 1;
	return 1;
}

/*
 * The states of the thread that calls itself that, into scratch.start.found_thread and
 * scratch.python: outer, state. first is the first interpreter.
 */
__noinline int find_python_thread(const struct hotspot_process *vm, __u64 first, __u64 self)
{
	const struct cpython_process *py = (const void *)vm;
	struct scratch *s = this_scratch();
	struct python_search x = {};

	if (!py || !s)
		return 1;
	x.py = py;
	x.s = s;
	x.self = self;
	/* see begin_anyhow */
	x.interpreter = any(s, first);
	x.thread = any(s, 0);
	x.runs = any(s, 0);
	x.complete = any(s, 0);
	s->start.found_thread = s->python.outer = 0;
	s->python.state = first && read_word(first + py->interpreter_next) ? PYTHON_SEVERAL : 0;
	bpf_loop(PYTHON_THREADS, search_thread, &x, 0);
	if (!x.complete && !s->start.found_thread)
		s->python.state |= PYTHON_LOST;
	return 0;
}

/* What pthread_self() returns in a thread; 0 where that is not known. */
static __always_inline __u64 thread_self(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task->thread.fsbase;
#else
	return 0;
#endif
}

/* Where the lock is that the thread's interpreter has. */
static __always_inline __u64 python_gil(const struct cpython_process *py, __u64 thread)
{
	return py->gil ? py->gil : read_word(read_word(thread + py->thread_interpreter) + py->interpreter_gil);
}

/* Whether the thread is in a system call that waits for the global interpreter lock. */
static __always_inline bool waits_for_gil(const struct cpython_process *py, struct scratch *s, __u64 thread)
{
#if defined(__TARGET_ARCH_x86)
	__u64 lock;

	if (s->saved.ip != s->regs.pc || s->saved.sp != s->regs.sp || s->saved.orig_ax != SYS_FUTEX)
		return false;
	lock = python_gil(py, thread);
	return lock && s->saved.di - lock < py->gil_size;
#else
	return false;
#endif
}

/*
 * Finds the current thread's first frame, and whether it waits for the lock. With one interpreter,
 * a thread whose state is known is not searched again.
 */
static __noinline __attribute__((unused)) void begin_python(const struct hotspot_process *vm, struct scratch *s,
							    struct task_struct *task, __u32 tid)
{
	const struct cpython_process *py = (const void *)vm;
	struct java_thread *t = &s->threads[tid & (THREADS - 1)];
	__u64 born = task->start_boottime, self = thread_self(task), first, thread;

	if (!self)
		return;
	first = read_word(py->interpreters);
	if (t->tid == tid && t->born == born && t->serial == vm->serial && t->tls_slot == first &&
	    (t->thread ? !(t->python & PYTHON_SEVERAL) && read_word(t->thread + py->thread_id) == self :
			 s->start.looked - t->stack_base < PYTHON_NONE_NS)) {
		s->python.state = t->python;
		s->python.outer = 0;
		thread = t->thread;
	} else {
		find_python_thread(vm, first, self);
		thread = s->start.found_thread;
		t->tid = tid;
#ifdef ALONE
		if (lacking) /* it may be found once that is there */
			t->tid = 0;
#endif
		t->born = born;
		t->serial = vm->serial;
		t->thread = thread;
		t->tls_slot = first;
		t->stack_base = s->start.looked;
		t->python = s->python.state;
	}
	if (!thread)
		return;
	s->python.first = innermost_frame(py, thread);
	s->python.waits = waits_for_gil(py, s, thread);
	if (s->python.outer)
		s->python.outer = innermost_frame(py, s->python.outer);
}

/*
 * The frame that comes next, into scratch.frame: 0 if it runs no code of the program. Leaves in
 * scratch.python whether the interpreter's loop was entered with it. Returns 0, END_READ, or
 * END_INTERPRETER if it runs what is no code.
 */
static __always_inline int python_frame(const struct hotspot_process *vm)
{
	const struct cpython_process *py = (const void *)vm;
	struct scratch *s = this_scratch();
	struct interpreted_method *m;
	__u64 code, at, *w, *c;
	__u32 n, entry;

	if (!py || !s)
		return END_READ;
	s->frame = 0;
	w = s->python.frame;
	c = s->python.code;
	n = py->frame_bytes;
	if (n > sizeof(s->python.frame) || bpf_probe_read_user(w, n, (void *)s->python.next))
		return END_READ;
	entry = w[py->frame_entry / 8 % PYTHON_FRAME_WORDS] >> 8 * (py->frame_entry % 8) & 0xff;
	code = w[py->frame_code / 8 % PYTHON_FRAME_WORDS] & ~7ull; /* from 3.14 on it has marks */
	at = w[py->frame_at / 8 % PYTHON_FRAME_WORDS];
	s->python.next = w[py->frame_previous / 8 % PYTHON_FRAME_WORDS];
	if (!s->python.next) {
		s->python.next = s->python.then;
		s->python.then = 0;
	}
	s->python.entry = (py->form & CPYTHON_ENTRY_EACH) || ((py->form & CPYTHON_ENTRY_FLAG) && entry);
	if ((py->form & CPYTHON_ENTRY_SHIM) && entry >= CPYTHON_OWNED_BY_C) {
		s->python.entry = 1;
		return 0;
	}
	n = py->code_bytes;
	if (n > sizeof(s->python.code) || bpf_probe_read_user(c, n, (void *)code))
		return END_READ;
	if (c[py->object_type / 8 % PYTHON_CODE_WORDS] != py->code_type)
		return END_INTERPRETER;
	if (py->form & CPYTHON_ADDRESS) {
		at = at - code - py->code_begin;
		/* free-threaded builds run copies of the instructions, which are elsewhere */
		at = at >> 1 < c[py->code_units / 8 % PYTHON_CODE_WORDS] ? at >> 1 : FRAME_NO_BCI;
	} else if (py->form & CPYTHON_BYTES)
		at = (__u64)(__u32)at >> 1;
	else
		at = (__u32)at;
	s->frame = interpreted_frame(code, at < FRAME_NO_BCI ? at : FRAME_NO_BCI);

	s->start.method_const = c[py->code_file / 8 % PYTHON_CODE_WORDS];
	s->start.method_shape = c[py->code_first / 8 % PYTHON_CODE_WORDS];
	s->start.method_name = (c[py->code_name / 8 % PYTHON_CODE_WORDS] +
				(c[py->code_lines / 8 % PYTHON_CODE_WORDS] << 16)) * SEEN_METHODS_HASH;
	m = &s->methods[method_slot(code)];
	if (m->method == code && m->serial == py->serial && m->class_epoch == s->sample.class_epoch &&
	    m->begin == s->start.method_const && m->id == method_id(s))
		return 0;
	see_method(py->slot, code);
	m->begin = s->start.method_const;
	m->id = method_id(s);
	m->class_epoch = s->sample.class_epoch;
	m->method = code;
	m->serial = py->serial;
	m->size = 0;
	return 0;
}

/* Whether native code at pc is the interpreter's loop, and there are frames that it runs. */
__noinline int in_python_loop(const struct hotspot_process *vm, __u64 pc)
{
	const struct cpython_process *py = (const void *)vm;
	struct scratch *s = this_scratch();

	return py && s && pc - py->eval_low < py->eval_high - py->eval_low && s->python.next;
}

/*
 * Whether the sampled native function was called by the interpreter's loop, and has no frame of its
 * own at the sampled instruction: at its begin and before it returns. Then rbp is the loop's, and
 * the loop is left in scratch.caller.
 */
__noinline int called_by_python_loop(const struct hotspot_process *vm)
{
	struct scratch *s = this_scratch();
	__u64 top[2], at;
	__u8 b[8] = {};
	bool pushed;

	if (!vm || !s)
		return 0;
	if (bpf_probe_read_user(b, 4, (void *)s->regs.pc))
		return 0;
	if (bpf_probe_read_user(top, sizeof(top), (void *)s->regs.sp))
		return 0;
	/* mov rbp, rsp, behind push rbp */
	pushed = b[0] == 0x48 && b[1] == 0x89 && b[2] == 0xe5 && top[0] == s->regs.bp;
	/* endbr64; push rbp; ret; jmp [rip + d32] of a PLT */
	if (!pushed && !(b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa) && b[0] != 0x55 &&
	    b[0] != 0xc3 && !(b[0] == 0xff && b[1] == 0x25))
		return 0;
	at = pushed ? top[1] : top[0];
	if (!in_python_loop(vm, at))
		return 0;
	s->caller.pc = at;
	s->caller.sp = s->regs.sp + (pushed ? 16 : 8);
	s->caller.bp = s->regs.bp;
	return 1;
}

/*
 * Whether native frames are followed by frames of Python. If so, no native ones come behind these.
 */
__noinline int python_left(void)
{
	struct scratch *s = this_scratch();

	if (!s || !(s->python.next | s->python.waiting))
		return 0;
	s->python.rest = 1;
	return 1;
}

/*
 * What the walk comes to next in the list, into scratch.frame, 0 if that is not to be seen; and
 * whether native frames follow, in scratch.python. Returns 0, or the enum walk_end with which the
 * walk ends behind it.
 */
__noinline int python_next(const struct hotspot_process *vm)
{
	struct scratch *s = this_scratch();
	int err;

	if (!s)
		return END_READ;
	s->python.native = 0;
	if (s->python.waiting) {
		s->python.waiting = 0;
		s->frame = (__u64)FRAME_STUB << FRAME_KIND_SHIFT | CPYTHON_GIL;
		return s->python.next ? 0 : END_ROOT;
	}
	err = python_frame(vm);
	if (err)
		return err;
	if (!s->python.next)
		return END_ROOT;
	s->python.native = s->python.entry && !s->python.rest;
	return 0;
}
