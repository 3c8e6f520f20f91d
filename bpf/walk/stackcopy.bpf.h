/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The stack copy: the part of the stack around the walk is copied in pieces, since one copy of 2 KB
 * costs less than the handful of single reads that one frame would take.
 */
#pragma once

#include "kernel/scratch.bpf.h"

/*
 * Copies the piece that begins at addr and ends below base, or 128 bytes if less is mapped. 0 if it
 * worked.
 */
__noinline int stackcopy_fill(__u64 addr, __u64 base)
{
	struct scratch *s = this_scratch();
	__u64 len;

	if (!s)
		return 1;
	len = s->start.chunk;
	count_walk(STACK_COPIES, 1);
	if (base > addr && base - addr < len)
		len = base - addr;
	len &= ~7ull;
	if (len > STACKCOPY_CHUNK || len < 16)
		len = 16;
	touch_recent(s, addr);
	s->stackcopy_low = addr;
	s->stackcopy_len = len;
	if (!bpf_probe_read_user(s->stackcopy, len, (void *)addr))
		return 0;
	s->stackcopy_len = 128;
	if (!bpf_probe_read_user(s->stackcopy, 128, (void *)addr))
		return 0;
	s->stackcopy_len = 0;
	return 1;
}

/* Makes [addr, addr + len) readable through stackcopy_word; len <= 128. 0 if it worked. */
static __always_inline int stackcopy_cover(struct scratch *s, __u64 base, __u64 addr, __u64 len)
{
	__u64 off = addr - s->stackcopy_low;

	if (off <= s->stackcopy_len && off + len <= s->stackcopy_len)
		return 0;
	if (stackcopy_fill(addr, base))
		return 1;
	return s->stackcopy_len < len;
}

/* Whether the word at addr is covered. */
static __always_inline bool stackcopy_has(struct scratch *s, __u64 addr)
{
	__u64 off = addr - s->stackcopy_low;

	return off <= s->stackcopy_len && off + 8 <= s->stackcopy_len;
}

/* The word at addr, which must be covered. */
static __always_inline __u64 stackcopy_word(struct scratch *s, __u64 addr)
{
	return s->stackcopy[((addr - s->stackcopy_low) >> 3) & (STACKCOPY_WORDS - 1)];
}
