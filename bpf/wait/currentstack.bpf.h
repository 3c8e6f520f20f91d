/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The stack of the current thread becomes a record, of programs in which the lock of a run queue
 * may be held: nobody is woken.
 */
#pragma once

#include "event/observe.bpf.h"
#include "record/offcpu.h"

/* Appends the kernel's frames behind the user's. */
static __always_inline void append_kernel(struct scratch *s, void *ctx, const __u32 most)
{
	struct sample *r = &s->sample;
	__u32 n = r->user_frames;
	long bytes;

	if (n > MAX_USER_FRAMES)
		return;
	bytes = bpf_get_stack(ctx, &r->frames[n], most * 8, 0);
	if (bytes > 0)
		r->kernel_frames = bytes / 8;
}

/*
 * Writes what was noted at that time, with so many bytes of text, and the current thread's stack,
 * of which most frames are the kernel's. Ends the observation. False if the record was dropped.
 */
static __always_inline bool write_stack(struct scratch *s, void *ctx, __u64 time, const __u32 most, const __u32 text)
{
	struct sample *r = &s->sample;
	__u64 size, n;
	bool lost;

	begin_record(s);
	r->header.time = time;
	append_kernel(s, ctx, most);
	n = (__u64)r->user_frames + r->kernel_frames;
	asm volatile("" : "+r"(n)); /* what is compared is what is used */
	if (n > MAX_USER_FRAMES + most)
		n = MAX_USER_FRAMES + most;
	bpf_probe_read_kernel((void *)s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) + 8 * n,
			      sizeof(struct observation) + text, &s->seen);
	size = offsetof(struct sample, frames) + 8 * n + sizeof(struct observation) + text;
	lost = bpf_ringbuf_output(&events, r, size, BPF_RB_NO_WAKEUP);
	count(lost ? OBSERVATIONS_DROPPED_RING_FULL : OBSERVATIONS_DELIVERED, 1);
	end_observation(s);
	return !lost;
}
