/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A tick of a clock becomes a sample: begin it, take the user's stack, the kernel's if the tick
 * came in the kernel, and write it. All programs that sample share the working memory. Ticks come
 * in hard interrupts, and a CPU has one clock. What begins a sample ends it.
 *
 * The record has the whole stack, as far as user space does not have it yet (intern.bpf.h). With
 * CONTEXTS, it has as much as a mode asks for (context.bpf.h). Either header defines begin_stack,
 * take_stack, shorten_stack and write_sample.
 */
#pragma once

#define TICK_PROGRAM
#ifdef CONTEXTS
#include "sample/context.bpf.h"
#else
#include "sample/intern.bpf.h"
#endif
#include "kernel/registers.bpf.h"

/* Touches what every sample needs, before it needs it. */
static __always_inline void touch_sample(const struct scratch *s, __u32 tid)
{
	touch(&s->threads[tid & (THREADS - 1)]);
#pragma unroll
	for (__u32 i = 0; i < sizeof(s->start); i += 64)
		touch((void *)&s->start + i);
	touch(&s->caller);
	touch(&s->stackcopy_low);
#pragma unroll
	for (__u32 i = 0; i < 32; i += 8)
		touch(&s->sample.frames[i]);
}

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
	begin_stack(s, (__u32)id);
	fill_header(&r->header, task, EVENT_SAMPLE, begin);
	r->flags = 0;
	r->end = END_NONE;
	r->cpu = bpf_get_smp_processor_id();
	r->class_epoch = r->attachment = 0;
	r->user_frames = r->kernel_frames = 0;
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	return s;
}

/* The process's VM, 0 if none is attached. */
static __always_inline const struct hotspot_process *vm_of(const struct scratch *s, __u32 pid)
{
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);

	return vm && vm->start_ticks == s->sample.header.start / NS_PER_START_TICK ? vm : 0;
}

/*
 * Takes the user's stack, if there is one: with saved, by the registers that the kernel saved, and
 * otherwise by ctx's.
 */
static __always_inline void sample_user(struct scratch *s, struct tick_context *ctx, bool saved)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32, tid = (__u32)id;

	if (!only_in_kernel(task)) {
		if (read_registers(s, ctx, task, saved))
			take_stack(s, vm_of(s, pid), task, pid, tid);
		else
			s->sample.end = END_COMPAT;
	}
	shorten_stack(s);
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

/* Writes the sample. */
__noinline int end_sample(void)
{
	struct scratch *s = this_scratch();
	__u64 begin, spent, size;
	__u32 java;

	if (!s)
		return 0;
	begin = s->sample.header.time;
	java = s->sample.flags & SAMPLE_JAVA_THREAD;
	size = write_sample(s);
	if (size) {
		count_tick(SAMPLES_DELIVERED, 1);
		count_tick(RING_BYTES, size);
	} else {
		count(SAMPLES_DROPPED_RING_FULL, 1);
	}
	spent = bpf_ktime_get_ns() - begin;
	count_tick(NS_TOTAL, spent);
	if (java) {
		count_tick(NS_JAVA, spent);
		count_tick(SAMPLES_JAVA, 1);
		count_tick(FRAMES_JAVA, s->stack.frames);
	}
	if (shares_scratch())
		release_scratch(s);
	return 0;
}

/* A tick of a sampling event becomes a sample. */
static __always_inline void sample_event(struct tick_context *ctx)
{
	struct scratch *s = begin_sample();

	if (!s)
		return;
	s->start.kernel = in_kernel(ctx);
	sample_user(s, ctx, s->start.kernel);
	if (s->start.kernel) /* from memory: the verifier would follow the walk for each value */
		sample_kernel(s, ctx, 0);
	end_sample();
}
