/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A tick of a clock becomes a sample: begin it, take the user's stack, the kernel's if the tick came in the kernel, and write it.
 * All programs that sample share the working memory. Ticks come in hard interrupts, and a CPU has one clock. What begins a sample ends it.
 */
#pragma once

#define TICK_PROGRAM
#include "intern.bpf.h"
#include "registers.bpf.h"
#include "wakeup.bpf.h"

/* Whether samples may refer to each other. Those of other modes have less than their stacks anyway. */
#define INTERNED (contexts == CONTEXT_WALK && !check_contexts)

/* Counts a tick and begins a sample of the current task; 0 if there is to be none. */
static __always_inline struct scratch *begin_sample(void)
{
	__u64 begin = bpf_ktime_get_ns();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid();
	struct scratch *s;
	struct sample *r;

	if (!(__u32)id) {
		count_tick(TICKS_IDLE, 1);
		return 0;
	}
	if (!chosen(id >> 32)) {
		count_tick(TICKS_FILTERED, 1);
		return 0;
	}
	count_tick(SAMPLES_ATTEMPTED, 1);
	s = shares_scratch() ? claim_scratch() : this_scratch();
	if (!s) {
		count(SAMPLES_DROPPED_NO_SCRATCH, 1);
		return 0;
	}
	r = &s->sample;
	touch_sample(s, (__u32)id);
	if (INTERNED)
		touch_known(s, (__u32)id);
	fill_header(&r->header, task, EVENT_SAMPLE, begin);
	r->flags = 0;
	r->end = END_NONE;
	r->cpu = bpf_get_smp_processor_id();
	r->class_epoch = r->attachment = 0;
	r->user_frames = r->kernel_frames = 0;
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	return s;
}

/* Takes the user's stack: with saved, from where the kernel saved the registers, and otherwise from ctx. False if there is none. */
static __always_inline bool sample_user(struct scratch *s, struct tick_context *ctx, bool saved)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32, tid = (__u32)id;
	const struct hotspot_process *vm;

	if (only_in_kernel(task))
		return false;
	if (!read_registers(s, ctx, task, saved)) {
		s->sample.end = END_COMPAT;
		return false;
	}
	vm = bpf_map_lookup_elem(&processes, &pid);
	if (vm && vm->start_ticks != s->sample.header.start / NS_PER_START_TICK)
		vm = 0;
	take_context(s, vm, task, pid, tid);
	return true;
}

/* The tick came in the kernel: appends its frames behind the user's, without the first skip. */
static __always_inline void sample_kernel(struct scratch *s, void *ctx, __u64 skip)
{
	struct sample *r = &s->sample;
	__u32 n = r->user_frames;
	long bytes;

	r->flags |= SAMPLE_KERNEL;
	if (n > MAX_USER_FRAMES)
		return;
	bytes = bpf_get_stack(ctx, &r->frames[n], MAX_KERNEL_FRAMES * 8, skip & BPF_F_SKIP_FIELD_MASK);
	if (bytes > 0)
		r->kernel_frames = bytes / 8;
}

/* Leaves of the user's stack what user space does not have. Before the kernel's frames are appended. */
static __always_inline void shorten_sample(void)
{
	if (INTERNED)
		refer();
}

/* Writes the sample. With user it has the user's stack, and what follows the frames. */
__noinline int end_sample(__u32 user)
{
	struct scratch *s = this_scratch();
	__u64 begin, spent, size, room = sizeof(s->sample) + sizeof(s->tail);
	__u32 n, k, walked, java;
	bool referring = false, lost;
	struct sample *r;
	void *record;

	if (!s)
		return 0;
	record = r = &s->sample;
	n = walked = r->user_frames;
	k = r->kernel_frames;
	java = r->flags & SAMPLE_JAVA_THREAD;
	begin = r->header.time;
	size = offsetof(struct sample, frames) + 8 * (__u64)(n + k);
	if (INTERNED && s->stack.root) {
		walked = s->stack.frames;
		referring = s->stack.base != NO_SUFFIX;
		if (!referring)
			size += append_root(s, n + k);
	} else if (user) {
		size += append_tail(s, n, k);
	}
	if (referring) {
		shorten();
		record = short_record(s);
		size -= offsetof(struct sample, frames) - sizeof(struct short_sample);
		room -= offsetof(struct sample, frames) - sizeof(struct short_sample);
	}
	if (size > room)
		size = room;
	lost = bpf_ringbuf_output(&events, record, size, wakeup_flags());
	if (INTERNED && s->stack.root) {
		if (!lost && s->stack.base != s->stack.suffixes)
			keep_suffixes();
	} else if (user) {
		end_context(s, lost);
	}
	if (lost) {
		count(SAMPLES_DROPPED_RING_FULL, 1);
	} else {
		count_tick(SAMPLES_DELIVERED, 1);
		count_tick(RING_BYTES, size);
	}
	spent = bpf_ktime_get_ns() - begin;
	count_tick(NS_TOTAL, spent);
	if (java) {
		count_tick(NS_JAVA, spent);
		count_tick(SAMPLES_JAVA, 1);
		count_tick(FRAMES_JAVA, walked);
	}
	if (shares_scratch())
		release_scratch(s);
	return 0;
}
