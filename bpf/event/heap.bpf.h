/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Objects of a HotSpot VM: of which class they are, and where. Nothing here keeps state, and every
 * read may fail.
 */
#pragma once

#include "walk/codecache.bpf.h"
#include "record/observation.h"
#include "walk/oop.bpf.h"

/* key: pid of an attached VM */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct hotspot_heap);
} heaps SEC(".maps");

/* The heap of vm, 0 if it is not known. */
static __always_inline struct hotspot_heap *heap_of(const struct hotspot_process *vm, __u32 pid)
{
	struct hotspot_heap *h = bpf_map_lookup_elem(&heaps, &pid);

	return h && vm && h->serial == vm->serial ? h : 0;
}

/* The class of an object, 0 if it cannot be read. */
static __always_inline __u64 klass_of(const struct hotspot_heap *h, __u64 object)
{
	__u64 narrow;

	if (!object)
		return 0;
	if (h->flags & HEAP_COMPACT_HEADER)
		narrow = read_word(object + h->object_klass) >> (h->klass_bit & 63);
	else if (h->flags & HEAP_NARROW_KLASS)
		narrow = read_int(object + h->object_klass);
	else
		return read_word(object + h->object_klass);
	return narrow ? h->narrow_klass_base + (narrow << (h->narrow_klass_shift & 31)) : 0;
}

/*
 * The size of an object in bytes, by its class and, for an array, its length:
 * src/hotspot/share/oops/klass.hpp.
 */
static __always_inline __u64 size_of_object(const struct hotspot_heap *h, __u64 object, __u64 klass)
{
	__s32 layout = read_int(klass + h->klass_layout);
	__u64 elements;

	if (layout > 0)
		return layout & ~7;
	elements = read_int(object + h->array_length);
	return (((layout >> 16) & 0xff) + (elements << (layout & 0x3f)) + 7) & ~7ull;
}

/* The address in a word that refers to an object. */
static __always_inline __u64 uncoloured(const struct hotspot_heap *h, __u64 reference)
{
	return h->flags & HEAP_COLOURED ? uncoloured_by(h->oop_colour_shift, reference) : reference;
}

/* What a reference at that address, in an object, refers to. */
static __always_inline __u64 referent(const struct hotspot_heap *h, __u64 at)
{
	__u64 narrow;

	if (!(h->flags & HEAP_NARROW_OOP))
		return uncoloured(h, read_word(at));
	narrow = read_int(at);
	return narrow ? h->narrow_oop_base + (narrow << (h->narrow_oop_shift & 31)) : 0;
}

/* What a word of the VM's own refers to: a reference, or a handle that points to one. */
static __always_inline __u64 native_referent(const struct hotspot_heap *h, __u64 at, bool handle)
{
	__u64 v = read_word(at);

	if (v && handle)
		v = read_word(v);
	return v ? uncoloured(h, v) : 0;
}

/* Where an object is (enum heap_place). */
static __always_inline __u8 place_of(const struct hotspot_heap *h, __u64 object)
{
	__u64 region;
	__u32 type;

	if (!object)
		return PLACE_UNKNOWN;
	if (h->flags & HEAP_YOUNG_BOUNDS)
		return object >= h->young_low && object < h->young_high ? PLACE_YOUNG : PLACE_OLD;
	if (!(h->flags & HEAP_REGIONS))
		return PLACE_UNKNOWN;
	region = read_word(h->region_table + 8 * (object >> (h->region_shift & 63)));
	if (!region)
		return PLACE_UNKNOWN;
	type = read_int(region + h->region_type);
	if (type == h->region_eden)
		return PLACE_YOUNG;
	if (type == h->region_survivor)
		return PLACE_SURVIVOR;
	if (type & h->region_humongous_mask)
		return PLACE_HUMONGOUS;
	return type & h->region_old_mask ? PLACE_OLD : PLACE_UNKNOWN;
}
