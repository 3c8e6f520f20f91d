/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which waits are recorded: those of T and longer always, and shorter ones with a probability
 * proportional to their length, so that each stands for T. User space sets T, so that records take
 * what it allows on average. Where many threads begin to wait at once, or far more than before, it
 * would be too late: then T is doubled here. A draw never depends on the T that comes of it, so
 * sums stay right on average.
 */
#pragma once

#include "kernel/maps.bpf.h"

/* T, ns; 0: nothing is recorded. */
__u64 mean_interval = 0;

/*
 * ns from one record to the next, on average over RECORD_BURST: T is doubled if there are more; 0:
 * it is not.
 */
__u64 record_pause = 0;

#define RECORD_BURST 100000000ull /* ns */

#define DRAW_BITS 28
#define MAX_MEAN_INTERVAL ((1ull << 36) - 1) /* ns; its product with a draw has 64 bits */

/* Until then records are paid for. */
__u64 paid_until = 0;

/* A record is begun. Programs of two CPUs that do so at once may count one. */
static __always_inline void pay_record(__u64 now)
{
	__u64 pause = record_pause, mean = mean_interval, paid = paid_until;

	if (!pause)
		return;
	paid = (paid > now ? paid : now) + pause;
	if (paid > now + RECORD_BURST) {
		paid = now + RECORD_BURST / 4 * 3; /* if it was not enough, the next time comes soon */
		/* compared, as user space may have set it meanwhile */
		if (mean && mean <= MAX_MEAN_INTERVAL / 2)
			__sync_val_compare_and_swap(&mean_interval, mean, 2 * mean);
	}
	paid_until = paid;
}

static __always_inline __u32 draw(void)
{
	return bpf_get_prandom_u32() >> (32 - DRAW_BITS);
}

/* A length below mean, of a draw: a wait is recorded if it is longer. */
static __always_inline __u64 least_of(__u32 draw, __u64 mean)
{
	return draw * mean >> DRAW_BITS;
}

/* Whether a wait of that length is drawn for a record. */
static __always_inline bool draw_wait(__u64 length, __u64 mean)
{
	return length >= mean || least_of(draw(), mean) < length;
}
