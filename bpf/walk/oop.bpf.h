/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* References to objects of a HotSpot VM. Nothing here keeps state. */
#pragma once

#include "record/hotspot.h"

/*
 * The address in a reference of generational ZGC, which is shifted left by shift. Where shift is 0
 * it is 1 + the lowest bit that is set from bit 12 to 15.
 */
static __always_inline __u64 uncoloured_by(__u32 shift, __u64 reference)
{
	__u32 by = shift & 63;

	for (int bit = 15; bit >= 12 && !shift; bit--) {
		if (reference & 1u << bit)
			by = bit + 1;
	}
	return reference >> by;
}
