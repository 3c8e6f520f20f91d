/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Thinning: a share of a CPU's ticks, drawn at random, become samples.
 *
 * Tick n covers [n * share, (n + 1) * share) of a line that is cut into strata of length 1. Each
 * stratum has one sample, at a tick that covers a random point of it, so n ticks have n * share
 * samples, +-1. Independent draws would add the noise of a binomial distribution.
 *
 * Every tick is drawn with probability share. Let x be the position in the stratum where the tick
 * begins. By induction the stratum has its sample with probability x at that time, independently of
 * how x came about:
 * - The tick ends in the stratum. If there is no sample yet, it is drawn with share / (1 - x): (1 -
 *   x) * share / (1 - x) = share. After that the stratum has its sample with probability x + share,
 *   which is the next x.
 * - The tick ends in the next stratum, at y = x + share - 1. Without a sample it must be drawn, for
 *   the stratum that ends. Otherwise it is drawn for the next one, with y / x, which is at most 1:
 *   (1 - x) + x * y / x = share. The next stratum has its sample with probability y.
 * This is ordered pivotal sampling (Deville and Tille 1998), which does not draw a tick for two
 * strata as independent points would.
 */
#pragma once

#define WHOLE (1ull << 32) /* a stratum; positions and shares are in 1/2^32 of it */

struct stratum {
	__u32 position; /* where the next tick begins */
	__u32 taken;	/* whether there is a sample before that */
};

/* Whether the next tick is drawn, at a share of at most WHOLE. */
static __always_inline bool draw_tick(struct stratum *s, __u64 share, __u64 random)
{
	__u64 begin = s->position, end = begin + share;
	bool drawn;

	if (end <= WHOLE) {
		drawn = !s->taken && (random * (WHOLE - begin)) >> 32 < share;
		s->taken = end < WHOLE && (s->taken || drawn);
	} else {
		drawn = !s->taken || (random * begin) >> 32 < end - WHOLE;
		s->taken = s->taken && drawn;
	}
	s->position = end;
	return drawn;
}
