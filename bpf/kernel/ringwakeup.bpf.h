/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When user space is woken to drain the stream: it costs more than the record. */
#pragma once

#include "kernel/maps.bpf.h"

/*
 * Wake user space only when this much waits for it; otherwise it comes by itself a few times a
 * second.
 */
const volatile __u32 wakeup_bytes = 2 << 20;

static __always_inline __u64 wakeup_flags(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Likewise for the ring of programs that interrupt others, when half of it is full. */
static __always_inline __u64 nmi_wakeup_flags(void)
{
	__u64 half = bpf_ringbuf_query(&nmi_events, BPF_RB_RING_SIZE) / 2;

	return bpf_ringbuf_query(&nmi_events, BPF_RB_AVAIL_DATA) >= half ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

#define HURRY 32 /* records of which one makes user space look at once */

/* Where user space must look up an object before it moves. */
static __always_inline __u64 urgent_wakeup_flags(void)
{
	return bpf_get_prandom_u32() % HURRY ? wakeup_flags() : BPF_RB_FORCE_WAKEUP;
}
