/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Objects by class and calling context, of a VM that was also started with -XX:+DTraceAllocProbes.
 */
#pragma once

#include "call/exact/exactevent.bpf.h"
#include "event/heap.bpf.h"

/* The context that a thread is in. */
static __always_inline __u32 current_node(struct exact_state *t)
{
	if (!t->depth)
		return t->root;
	if (t->depth > EXACT_DEPTH)
		return (frame_at(t, EXACT_DEPTH - 1)->node & NODE_ID) | NODE_LOST;
	return frame_at(t, t->depth - 1)->node & ~NODE_INLINED;
}

/* Counts an object of the class and context in t->made. False if there is no room. */
static __noinline bool count_made(struct exact_state *t, __u64 size)
{
	struct exact_objects *found = bpf_map_lookup_elem(&allocations, &t->made);
	struct exact_objects first = {.objects = 1, .bytes = size};

	if (!found)
		return !bpf_map_update_elem(&allocations, &t->made, &first, BPF_NOEXIST);
	found->objects++;
	found->bytes += size;
	return true;
}

/* Whether an object was counted. */
static __always_inline bool object_counted(__u64 object)
{
	struct exact_state *t = this_thread();
	__u32 pid = target;
	struct hotspot_heap *h;
	struct epochs *e;

	if (!t)
		return false;
	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	if (!h)
		return false;
	t->made.klass = klass_of(h, object);
	if (!t->made.klass)
		return false;
	t->made.node = current_node(t);
	e = bpf_map_lookup_elem(&epochs, &t->slot);
	t->made.class_epoch = e ? e->classes : 0;
	return count_made(t, size_of_object(h, object, t->made.klass));
}

/* An object was made: the argument of that number refers to it, and the call has just been made. */
static __always_inline int object_made(struct registers *ctx, int number)
{
	__u64 object;

	if (!recorded())
		return 0;
#if defined(__TARGET_ARCH_x86)
	object = number ? ctx->si : ctx->di;
#elif defined(__TARGET_ARCH_arm64)
	object = ctx->regs[number];
#endif
	count_exact(EXACT_OBJECTS, 1);
	if (!object_counted(object))
		count_exact(EXACT_NO_OBJECT, 1);
	return 0;
}
