/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What happens at a method's entry and at its return, from the VM's registers to the counts. */
#pragma once

#include "call/exact/exactedge.bpf.h"
#include "call/exact/exactstack.bpf.h"

#define TIMED 64 /* of so many events of a thread one is timed, and speaks for all */

/*
 * Fills in the state of a thread that makes its first call. False if there is no room for its
 * tree's root.
 */
static __noinline bool set_up(struct exact_state *t, struct task_struct *task, const struct hotspot_process *vm)
{
	__u32 id = new_node_id();
	struct exact_node *root = id ? bpf_map_lookup_elem(&nodes, &id) : 0;

	if (!root)
		return false;
	root->method = task->pid;
	t->root = id;
	t->slot = vm->slot;
	t->interpreter_low = vm->interpreter_low;
	t->interpreter_high = vm->interpreter_high;
	t->code_low = vm->code_low;
	t->sender_sp = vm->interp_sender_sp;
	t->record.start = task->start_boottime;
	t->record.tid = task->pid;
	t->record.complete = task->start_boottime >= recording_since;
	bpf_get_current_comm(t->record.comm, sizeof(t->record.comm));
	if (bpf_map_update_elem(&thread_records, &id, &t->record, BPF_NOEXIST))
		count_exact(EXACT_NO_RECORD, 1);
	return true;
}

/* The state of a thread that has none; null if there is no room for it. */
static __noinline struct exact_state *new_thread(__u32 tid)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 zero = 0, pid = target;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct exact_state *t = bpf_map_lookup_elem(&blank, &zero);

	if (!vm || !t || bpf_map_update_elem(&threads, &tid, t, BPF_NOEXIST))
		return 0;
	t = bpf_map_lookup_elem(&threads, &tid);
	if (t && !set_up(t, task, vm)) {
		bpf_map_delete_elem(&threads, &tid);
		return 0;
	}
	return t;
}

static __always_inline struct exact_state *this_thread(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)id;
	struct exact_state *t;

	t = bpf_map_lookup_elem(&threads, &tid);
	return t ? t : new_thread(tid);
}

/* Whether the event counts. Probes of kernels without uprobe.multi fire in all processes. */
static __always_inline bool recorded(void)
{
	return recording_since && bpf_get_current_pid_tgid() >> 32 == target;
}

/* The arguments are (JavaThread*, Method*), and the call has just been made. */
static __always_inline void read_registers(struct exact_state *t, struct registers *ctx)
{
#if defined(__TARGET_ARCH_x86)
	t->key.method = ctx->si;
	t->from = read_word(ctx->sp);
	t->sp = ctx->sp + 8;
	t->bp = ctx->bp;
#elif defined(__TARGET_ARCH_arm64)
	t->key.method = ctx->regs[1];
	t->from = ctx->regs[30];
	t->sp = ctx->sp;
	t->bp = ctx->regs[29];
#endif
}

/* What the VM is at, and where on the stack. */
static __always_inline void begin_event(struct exact_state *t)
{
	struct epochs *e = bpf_map_lookup_elem(&epochs, &t->slot);

	if (e) {
		t->code_epoch = e->code;
		t->key.class_epoch = e->classes;
	}
	locate(t);
	unwind(t);
}

static __always_inline void entered(struct exact_state *t)
{
	begin_event(t);
	push(t);
	if (record_edges)
		count_edge(t);
}

static __always_inline void left(struct exact_state *t)
{
	begin_event(t);
	pop(t);
}

/* Time of an event that is to be timed, or 0. */
static __always_inline __u64 event_begin(struct exact_state *t)
{
	return ++t->events % TIMED ? 0 : bpf_ktime_get_ns();
}

static __always_inline void event_end(__u64 begin)
{
	if (!begin)
		return;
	count(CALL_HITS, TIMED);
	count(NS_CALLS, (bpf_ktime_get_ns() - begin) * TIMED);
}

static __always_inline int method_entered(struct registers *ctx)
{
	struct exact_state *t;
	__u64 begin;

	if (!recorded())
		return 0;
	count_exact(EXACT_ENTRIES, 1);
	t = this_thread();
	if (!t) {
		count_exact(EXACT_NO_THREAD, 1);
		return 0;
	}
	begin = event_begin(t);
	read_registers(t, ctx);
	entered(t);
	event_end(begin);
	return 0;
}

static __always_inline int method_left(struct registers *ctx)
{
	struct exact_state *t;
	__u64 begin;

	if (!recorded())
		return 0;
	count_exact(EXACT_EXITS, 1);
	t = this_thread();
	if (!t)
		return 0;
	begin = event_begin(t);
	read_registers(t, ctx);
	left(t);
	event_end(begin);
	return 0;
}

/* Keeps the name that a thread had in the end, and makes room for another one. */
static __always_inline void thread_ended(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), root;
	struct exact_state *t = bpf_map_lookup_elem(&threads, &tid);
	struct exact_thread *record;

	if (!t)
		return;
	root = t->root;
	record = bpf_map_lookup_elem(&thread_records, &root);
	if (record)
		bpf_get_current_comm(record->comm, sizeof(record->comm));
	bpf_map_delete_elem(&threads, &tid);
}
