/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Who ends a wait becomes a record. */
#pragma once

#include "wait/currentstack.bpf.h"
#include "wait/waitsampling.bpf.h"
#include "wait/taskstorage.bpf.h"
#include "kernel/registers.bpf.h"

/* of the kernel: a packet to the same machine has 50, from the sender through to the receiver */
#define MAX_WAKER_FRAMES 64

/*
 * Draws whether the wait of a thread is recorded that is woken now, and notes that for its return.
 * Its length is drawn once: the same number is compared with the length until now, for the record
 * of the waker, and at the return with that of the whole wait.
 */
static __always_inline bool draw_waking(struct followed *f, __u64 since, __u64 now, __u64 mean)
{
	f->mean = mean;
	f->draw = draw();
	f->woken = now;
	return now > since && now - since > least_of(f->draw, mean);
}

/*
 * A record of a waker that has the kernel's frames alone, as struct sample and struct observation
 * have them.
 */
struct interrupting_waker {
	struct event_header header;
	__u16 user_frames, kernel_frames;
	__u8 end, flags;
	__u16 cpu;
	__u32 class_epoch, attachment;
	__u8 comm[16];
	__u64 frames[MAX_WAKER_FRAMES]; /* 0 behind the last one */
	struct observation o;
};

_Static_assert(offsetof(struct interrupting_waker, frames) == offsetof(struct sample, frames),
	       "laid out as struct sample");

/*
 * A thread is woken while another program of this object runs on this CPU. So it is an interrupt
 * that wakes it, and the current thread has nothing to do with that. The working memory is in use.
 */
static __always_inline void write_interrupting(void *ctx, __u32 tid, __u64 since, __u64 now)
{
	struct interrupting_waker *r;

	count(OBSERVATIONS_ATTEMPTED, 1);
	r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);
	if (!r) {
		count(OBSERVATIONS_DROPPED_RING_FULL, 1);
		count(WAKERS_LOST, 1);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	fill_header(&r->header, (struct task_struct *)bpf_get_current_task_btf(), EVENT_OBSERVED, now);
	r->kernel_frames = MAX_WAKER_FRAMES;
	r->cpu = bpf_get_smp_processor_id();
	bpf_get_stack(ctx, r->frames, sizeof(r->frames), 0);
	r->o.what = OBSERVED_WAKER;
	r->o.count = WAKER_VALUES;
	r->o.flags = WAKER_KERNEL;
	r->o.probe = PROBE_WAIT;
	r->o.every = 1;
	r->o.values[WAKER_TID] = tid;
	r->o.values[WAKER_SINCE] = since;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	count(OBSERVATIONS_DELIVERED, 1);
}

/* Who wakes a thread becomes a record, which precedes that of the wait. */
static __always_inline void write_waker(void *ctx, __u32 tid, __u64 since, __u64 now)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf(), *leader = task->group_leader;
	struct scratch *s;

	count(WAKERS_DRAWN, 1);
	pay_record(now);
	s = this_scratch();
	if (s && s->watch.claimed) {
		write_interrupting(ctx, tid, since, now);
		return;
	}
	s = begin_observation(OBSERVED_WAKER, PROBE_WAIT, 1);
	if (!s) {
		count(WAKERS_LOST, 1);
		return;
	}
	s->seen.o.count = WAKER_VALUES;
	s->seen.o.values[WAKER_TID] = tid;
	s->seen.o.values[WAKER_SINCE] = since;
	s->seen.o.text_len = sizeof(task->comm);
	bpf_probe_read_kernel(s->seen.text, sizeof(task->comm), leader->comm);
	if (!task->pid || (task->flags & PF_KTHREAD))
		s->seen.o.flags = WAKER_KERNEL;
	else if (chosen(task->tgid))
		s->seen.o.flags = WAKER_CHOSEN;
	if (s->seen.o.flags != WAKER_CHOSEN || only_in_kernel(task) || !read_registers(s, 0, task, true))
		s->watch.bare = 1;
	if (!write_stack(s, ctx, now, MAX_WAKER_FRAMES, sizeof(task->comm)))
		count(WAKERS_LOST, 1);
}
