/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a pc in the code cache to the CodeBlob around it, through HotSpot's own segment map: one
 * byte a segment, 0 where a block begins, 0xff where nothing is, else how many segments to go back
 * at least (share/memory/heap.cpp). Nothing here keeps state, so programs that can be preempted may
 * use it.
 */
#pragma once

#include "record/hotspot.h"
#include "kernel/kernel.h"

static __always_inline __u64 read_word(__u64 addr)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)addr);
	return v;
}

static __always_inline __u32 read_int(__u64 addr)
{
	__u32 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)addr);
	return v;
}

#define SEGMENT_HOPS 24 /* 12-15 are seen; each hop goes back further */

static __always_inline bool in_code_cache(const struct hotspot_process *vm, __u64 pc)
{
	return pc - vm->code_low < vm->code_high - vm->code_low; /* one branch, as the verifier follows each */
}

/* Address of the CodeBlob around pc, 0 if there is none; adds the words read to reads. */
static __always_inline __u64 find_blob(const struct hotspot_process *vm, __u64 pc, __u32 *reads)
{
	__u64 low = 0, map = 0, i;
	__u8 tag = 0;

	for (int h = 0; h < MAX_CODE_HEAPS; h++) {
		if (pc >= vm->heaps[h].low && pc < vm->heaps[h].high) {
			low = vm->heaps[h].low;
			map = vm->heaps[h].segment_map;
		}
	}
	if (!low)
		return 0;
	i = (pc - low) >> (vm->segment_shift & 31);
	for (int hop = 0; hop < SEGMENT_HOPS; hop++) {
		(*reads)++;
		if (bpf_probe_read_user(&tag, 1, (void *)(map + i)))
			return 0;
		if (tag == 0)
			return low + (i << (vm->segment_shift & 31)) + vm->block_header;
		if (tag == 0xff || tag > i)
			return 0;
		i -= tag;
	}
	return 0;
}

static __always_inline __u64 blob_at(const struct hotspot_process *vm, __u64 pc)
{
	__u32 reads = 0;

	return find_blob(vm, pc, &reads);
}
