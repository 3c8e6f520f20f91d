/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a task to its JavaThread: thread pointer -> dynamic thread vector -> libjvm's block -> Thread::_thr_current
 * (the layout of glibc's tcbhead_t and dtv_t, sysdeps/x86_64/nptl/tls.h). Only a JavaThread proper counts, told by
 * its vtable: compiler and collector threads have no Java frames, and no anchor at that offset.
 */
#pragma once

#include "scratch.bpf.h"

/* Where the current thread keeps Thread::_thr_current; 0 if it has none. */
static __always_inline __u64 tls_slot(const struct hotspot_process *vm, struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	__u64 tp = task->thread.fsbase;
	__u64 dtv = read_word(tp + 8);
	__u64 block = read_word(dtv + 16 * vm->tls_module);

	if (block && block != ~0ull) /* ~0: not allocated yet */
		return block + vm->tls_offset;
#endif
	return 0;
}

/* The current thread as a JavaThread, or 0. Costs one read of the guest where it is known already. */
static __always_inline struct java_thread *current_java_thread(const struct hotspot_process *vm, struct scratch *s,
							       struct task_struct *task, __u32 tid)
{
	struct java_thread *t = &s->threads[tid & (THREADS - 1)];
	__u64 born = task->start_boottime;
	__u64 slot, thread;

	if (!(vm->flags & HOTSPOT_TLS))
		return 0;
	if (t->tid == tid && t->born == born && t->serial == vm->serial && read_word(t->tls_slot) == t->thread)
		return t;
	slot = tls_slot(vm, task);
	thread = slot ? read_word(slot) : 0;
	if (!thread || read_word(thread) != vm->java_thread_vtable)
		return 0;
	t->tid = tid;
	t->born = born;
	t->serial = vm->serial;
	t->tls_slot = slot;
	t->thread = thread;
	t->stack_base = read_word(thread + vm->thread_stack_base);
	return t;
}
