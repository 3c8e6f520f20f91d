/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a task to its JavaThread. Only a JavaThread proper counts, identified by its vtable:
 * compiler and collector threads have no Java frames, and no anchor at that offset. There are two
 * ways:
 *
 *   HOTSPOT_TLS      thread pointer -> dynamic thread vector -> libjvm's block ->
 *                    Thread::_thr_current (the layout of glibc's tcbhead_t and dtv_t,
 *                    sysdeps/x86_64/nptl/tls.h)
 *   HOTSPOT_THREADS  by the thread's id, in a table: where libjvm is stripped, older than JDK 9, or
 *                    of musl. The table has what Java code kept in a register when it was sampled,
 *                    and what user space read in the VM's list of threads.
 */
#pragma once

#include "walk/codecache.bpf.h"
#include "kernel/scratch.bpf.h"

/*
 * Nobody whose VM needs none has entries, so room is made for each when it comes. Those of threads
 * that end are deleted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_KNOWN_THREADS);
	__type(key, struct known_thread_key);
	__type(value, struct known_thread);
} known_threads SEC(".maps");

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

/* The thread's id as it sees it itself. */
static __always_inline __u32 own_tid(struct task_struct *task)
{
	/*
	 * a number: before 6.6 no address is computed from a pointer of the kernel's and what is
	 * only known there
	 */
	__u64 pid = 0, at;
	__u32 level = 0, tid = 0;

	bpf_probe_read_kernel(&pid, sizeof(pid), &task->thread_pid);
	bpf_probe_read_kernel(&level, sizeof(level), (void *)(pid + bpf_core_field_offset(struct pid, level)));
	at = pid + bpf_core_field_offset(struct pid, numbers) + bpf_core_field_offset(struct upid, nr);
	at += (__u64)level * bpf_core_type_size(struct upid);
	bpf_probe_read_kernel(&tid, sizeof(tid), (void *)at);
	return tid;
}

/* Whether thread is a JavaThread that says it belongs to the thread with that id. */
static __always_inline bool is_java_thread_of(const struct hotspot_process *vm, __u64 thread, __u32 own)
{
	return thread && !(thread & 7) && read_word(thread) == vm->java_thread_vtable &&
	       (__u32)read_int(read_word(thread + vm->thread_os) + vm->os_thread_id) == own;
}

/*
 * The JavaThread of a thread, by its id, into scratch. born is when it began. candidate is what
 * Java code has in its register for it, 0 if the thread is elsewhere: stubs may have put that
 * register to another use. Returns 0 if it was found.
 */
__noinline int find_known_thread(__u32 pid, __u32 own, __u64 born, __u64 candidate)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct known_thread_key key = {.pid = pid, .own_tid = own};
	struct scratch *s = this_scratch();
	struct known_thread *known;
	bool valid;

	if (!vm || !s || !own)
		return 1;
	known = bpf_map_lookup_elem(&known_threads, &key);
	valid = known && known->serial == vm->serial && known->as_of >= born;
	if (candidate && is_java_thread_of(vm, candidate, own)) {
		struct known_thread learned = {.thread = candidate, .as_of = bpf_ktime_get_boot_ns(),
					       .serial = vm->serial};

		s->start.found_thread = candidate;
		if ((!valid || known->thread != candidate) &&
		    bpf_map_update_elem(&known_threads, &key, &learned, BPF_ANY))
			count(THREADS_REFUSED, 1);
		return 0;
	}
	if (!valid)
		return 1;
	s->start.found_thread = known->thread;
	return !is_java_thread_of(vm, s->start.found_thread, own);
}

/* A thread of an attached VM ends: who has its id next is another one. */
static __always_inline void forget_java_thread(__u32 pid, struct task_struct *task)
{
	struct known_thread_key key = {.pid = pid, .own_tid = own_tid(task)};

	bpf_map_delete_elem(&known_threads, &key);
}

/*
 * The current thread as a JavaThread, by its id, or 0. Costs three reads of the guest where it is
 * known already. Not inlined: the programs that walk have no stack left.
 */
static __noinline struct java_thread *known_java_thread(const struct hotspot_process *vm, struct scratch *s,
							struct task_struct *task, __u32 tid, __u64 candidate)
{
	struct java_thread *t = &s->threads[tid & (THREADS - 1)];
	__u64 born = task->start_boottime;
	__u32 own;

	if (t->tid == tid && t->born == born && t->serial == vm->serial && (!candidate || candidate == t->thread) &&
	    is_java_thread_of(vm, t->thread, t->own_tid))
		return t;
	own = own_tid(task);
	if (find_known_thread(task->tgid, own, born, candidate))
		return 0;
	t->tid = tid;
	t->born = born;
	t->serial = vm->serial;
	t->own_tid = own;
	t->thread = s->start.found_thread;
	t->stack_base = read_word(t->thread + vm->thread_stack_base);
	return t;
}

/*
 * The current thread as a JavaThread, or 0. Costs one read of the guest where it is known already,
 * with HOTSPOT_TLS. candidate is as in find_known_thread.
 */
static __always_inline struct java_thread *current_java_thread(const struct hotspot_process *vm, struct scratch *s,
							       struct task_struct *task, __u32 tid, __u64 candidate)
{
	struct java_thread *t = &s->threads[tid & (THREADS - 1)];
	__u64 born = task->start_boottime;
	__u64 slot, thread;

	if (vm->flags & HOTSPOT_THREADS)
		return known_java_thread(vm, s, task, tid, candidate);
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
