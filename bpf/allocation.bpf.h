/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Allocations of HotSpot, where a thread has met the end of its allocation buffer (TLAB): it got a new one, or an object was
 * allocated outside and the buffer is kept (src/hotspot/share/gc/shared/allocTracer.cpp, JDK 11 and later). That is once in
 * thousands of objects. Exact counts are of VMs that were started with -XX:+DTraceAllocProbes.
 */
#pragma once

#include "observe.bpf.h"

/* Arguments of a C++ function by their number, at its entry: System V ABI. */
static __always_inline __u64 parameter(const struct registers *r, int i)
{
#if defined(__TARGET_ARCH_x86)
	switch (i) {
	case 0: return r->di;
	case 1: return r->si;
	case 2: return r->dx;
	case 3: return r->cx;
	case 4: return r->r8;
	}
	return r->r9;
#elif defined(__TARGET_ARCH_arm64)
	return r->regs[i & 7];
#endif
}

/* What a C++ function returned, behind the call. */
static __always_inline __u64 result(const struct registers *r)
{
#if defined(__TARGET_ARCH_x86)
	return r->ax;
#elif defined(__TARGET_ARCH_arm64)
	return r->regs[0];
#endif
}

#define MAX_ALLOCATORS 16384 /* threads; of more, the one that was not heard of for longest is forgotten */

/* key: thread; value: 1 if an object did not fit into what is left of its buffer and was allocated outside */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_ALLOCATORS);
	__type(key, __u32);
	__type(value, __u32);
} ended_buffers SEC(".maps");

/*
 * Whether this object is the first that the thread's buffer has no room for. Of all objects that it is the first to end a
 * buffer is as likely as the object is large: the end is a point among the bytes that the thread allocates. Those that come
 * after it before the thread gets another buffer are met under another law: small ones still fit.
 */
static __always_inline bool ends_buffer(__u64 size, __u64 buffer, bool outside)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), one = 1, *ended;
	bool first;

	if (outside && size >= buffer)
		return false; /* no buffer has room for it */
	ended = bpf_map_lookup_elem(&ended_buffers, &tid);
	first = !ended || !*ended;
	if (ended)
		*ended = outside;
	else if (outside)
		bpf_map_update_elem(&ended_buffers, &tid, &one, BPF_ANY);
	return first;
}

/* Notes an allocation; the registers are those at the entry of send_allocation_in_new_tlab or _outside_tlab. */
static __always_inline bool see_allocation(const struct registers *r, __u32 probe, bool outside)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, every;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct scratch *s;
	__u64 size, buffer, thread;
	bool end;

	if (!chosen(pid))
		return false;
	vm = bpf_map_lookup_elem(&processes, &pid);
	if (outside) {
		size = parameter(r, 2);
		thread = parameter(r, 3);
		h = heap_of(vm, pid);
		buffer = h ? read_word(thread + h->tlab_end) - read_word(thread + h->tlab_start) : 0;
	} else {
		size = parameter(r, 3);
		buffer = parameter(r, 2);
	}
	end = ends_buffer(size, buffer, outside);
	every = told(probe);
	if (!every)
		return false;
	s = begin_observation(OBSERVED_ALLOCATION, probe, every);
	if (!s)
		return false;
	see_object(s, vm, pid, parameter(r, 1), parameter(r, 0));
	s->seen.o.flags = (outside ? SEEN_OUTSIDE : 0) | (end ? SEEN_END : 0);
	s->seen.o.count = 2;
	s->seen.o.values[0] = size;
	s->seen.o.values[1] = buffer;
	return true;
}

#define MAX_COUNTED_CLASSES 16384

struct counted_class {
	__u64 klass;
	__u32 serial; /* of the VM */
	__u32 pad;
};

struct class_count {
	__u64 objects, bytes;
};

/* Objects that VMs allocated: each one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COUNTED_CLASSES);
	__type(key, struct counted_class);
	__type(value, struct class_count);
} allocated SEC(".maps");

/* The size of an object in bytes, by its class and, for an array, its length: src/hotspot/share/oops/klass.hpp. */
static __always_inline __u64 size_of_object(const struct hotspot_heap *h, __u64 object, __u64 klass)
{
	__s32 layout = read_int(klass + h->klass_layout);
	__u64 elements;

	if (layout > 0)
		return layout & ~7;
	elements = read_int(object + h->array_length);
	return (((layout >> 16) & 0xff) + (elements << (layout & 0x3f)) + 7) & ~7ull;
}

/* Counts one object. */
static __always_inline void count_object(__u64 object)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	const struct hotspot_heap *h = heap_of(vm, pid);
	struct counted_class key = {};
	struct class_count *c, none = {};
	__u64 size;

	if (!h)
		return;
	count(PROBE_HITS, 1);
	key.klass = klass_of(h, object);
	key.serial = h->serial;
	size = size_of_object(h, object, key.klass);
	c = bpf_map_lookup_elem(&allocated, &key);
	if (!c) {
		bpf_map_update_elem(&allocated, &key, &none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&allocated, &key);
	}
	if (!c) {
		count(OBSERVATIONS_DROPPED_TABLE_FULL, 1);
		return;
	}
	__sync_fetch_and_add(&c->objects, 1);
	__sync_fetch_and_add(&c->bytes, size);
}
