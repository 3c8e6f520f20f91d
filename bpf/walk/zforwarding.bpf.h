/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where ZGC has moved an object. It updates a reference when that is loaded, or when it marks;
 * until then the reference leads to where the object was, and other objects may be there. For each
 * page whose objects it moves, ZGC keeps a table with the new places until no reference leads to
 * the old ones (src/hotspot/share/gc/z/zForwarding.hpp).
 *
 *   forward_tables[] -> by page: start, alignment, length of the table; entries: index << 46 | new offset << 1 | 1
 *
 * Addresses are offsets there, as in the table. The entries are a hash table with linear probing,
 * which is half empty.
 */
#pragma once

#include "walk/codeblob.bpf.h"

#define FORWARD_TABLES 2
#define FORWARD_PROBES 16 /* of half empty tables: more are rare */
#define FORWARD_READS (4 + FORWARD_PROBES)
#define FORWARD_INDEX_SHIFT 46

/*
 * Where in a table of that many entries, which is a power of two, the search for an index begins
 * (src/hotspot/share/gc/z/zHash.inline.hpp).
 */
static __always_inline __u32 forward_slot(__u32 index, __u64 entries)
{
	__u32 h = (index << 15) - index - 1;

	h ^= h >> 12;
	h *= 5;
	h ^= h >> 4;
	h *= 2057;
	h ^= h >> 16;
	return h & (entries - 1);
}

/*
 * Looks for the entry of scratch.forward in the table of a page that is known there; 0 if there is
 * none.
 */
static __always_inline __u64 forward_entry(struct scratch *s)
{
	__u64 slot = forward_slot(s->forward.index, s->forward.entries), entry;

	for (int i = 0; i < FORWARD_PROBES; i++) {
		entry = read_word(s->forward.table + 8 * ((slot + i) & (s->forward.entries - 1)));
		if (!(entry & 1))
			break;
		if (entry >> FORWARD_INDEX_SHIFT == s->forward.index)
			return entry;
	}
	return 0;
}

/*
 * Looks for what has been moved away from an address of ZGC's heap. Returns 1 with the new address
 * in scratch.moved, or 0 if nothing has, or that is not known. Whether that is the object that was
 * meant has to be seen: the answer may be about another one. What is between is in scratch, as
 * there is little room on the stack.
 */
__noinline int find_moved(const struct hotspot_process *vm, __u64 object)
{
	struct scratch *s = this_scratch();

	if (!vm || !s)
		return 0;
	s->forward.offset = object & (vm->heap_low - 1);
	for (int i = 0; i < FORWARD_TABLES; i++) {
		if (!vm->forward_tables[i] || !s->start.lookup_left)
			break;
		spend_lookup(s, FORWARD_READS);
		s->forward.table = read_word(vm->forward_tables[i] +
					     8 * (s->forward.offset >> (vm->forward_granule & 63)));
		if (!s->forward.table)
			continue;
		s->forward.index = s->forward.offset - read_word(s->forward.table + vm->forward_start);
		s->forward.index >>= read_word(s->forward.table + vm->forward_shift) & 63;
		s->forward.entries = read_word(s->forward.table + vm->forward_length);
		s->forward.table += vm->forward_entries;
		s->moved = forward_entry(s);
		if (s->moved) {
			s->moved = vm->heap_low | ((s->moved & ((1ull << FORWARD_INDEX_SHIFT) - 1)) >> 1);
			return 1;
		}
	}
	return 0;
}
