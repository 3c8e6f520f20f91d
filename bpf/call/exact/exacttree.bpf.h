/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The complete calling context tree (Moret, Binder and Villazon, "CCCP", PEPM 2009), one for each
 * thread.
 */
#pragma once

#include "call/exact/exactstate.bpf.h"

/* Tells user space of a method that it has to name, once in every class epoch. */
static __noinline int announce(struct exact_state *t, __u64 method)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = target;
	struct hotspot_process *vm;
	/* its own: nobody waits for a record that a preempted thread has not finished */
	struct new_method *e = &t->announced;
	__u8 one = 1;

	t->seen.method = method;
	t->seen.class_epoch = t->key.class_epoch;
	if (bpf_map_lookup_elem(&methods, &t->seen))
		return 0;
	if (bpf_map_update_elem(&methods, &t->seen, &one, BPF_NOEXIST)) {
		if (!bpf_map_lookup_elem(&methods, &t->seen)) /* else another thread was faster */
			count_exact(EXACT_NO_METHOD, 1);
		return 0;
	}
	vm = bpf_map_lookup_elem(&processes, &pid);
	count(EVENTS_ATTEMPTED, 1);
	fill_header(&e->header, task, EVENT_NEW_METHOD, bpf_ktime_get_ns());
	e->method = method;
	e->class_epoch = t->key.class_epoch;
	e->attachment = vm ? vm->serial : 0;
	if (bpf_ringbuf_output(&events, e, sizeof(*e), BPF_RB_NO_WAKEUP))
		count(EVENTS_DROPPED_RING_FULL, 1); /* it stands in the methods map */
	else
		count(EVENTS_DELIVERED, 1);
	return 0;
}

/* A number for a new node, 0 if there is none left. */
static __always_inline __u32 new_node_id(void)
{
	__u32 id;

	if (last_node >= max_nodes - 1) /* or failing attempts would let it wrap around in the end */
		return 0;
	id = __sync_fetch_and_add(&last_node, 1) + 1;
	return id < max_nodes ? id : 0;
}

/* Makes the node of t->key. Returns its number, 0 if there is no room. */
static __noinline __u32 make_node(struct exact_state *t)
{
	__u32 id = new_node_id();
	struct exact_node *n;

	if (!id)
		return 0;
	n = bpf_map_lookup_elem(&nodes, &id);
	if (!n)
		return 0;
	n->method = t->key.method;
	n->parent = t->key.parent;
	n->class_epoch = t->key.class_epoch;
	if (bpf_map_update_elem(&node_ids, &t->key, &id, BPF_NOEXIST))
		return 0; /* a node without calls is left behind */
	announce(t, t->key.method);
	return id;
}

/* Counts a call that has no node of its own at the deepest context that is known of it. */
static __always_inline void count_overflow(__u32 node, __u32 cause)
{
	struct exact_node *n;

	node &= NODE_ID;
	n = bpf_map_lookup_elem(&nodes, &node);
	if (n)
		n->overflow++;
	count_exact(cause, 1);
}

/*
 * Counts a call of the method in t->key from the frame on top of the shadow stack, and returns the
 * node of the new frame. Nodes belong to one thread, so they are counted up without atomic
 * instructions.
 */
static __always_inline __u32 enter_node(struct exact_state *t, __u32 parent)
{
	struct exact_node *n;
	__u32 id, *found;

	if (parent & NODE_LOST) {
		count_overflow(parent, EXACT_NO_NODE);
		return (parent & NODE_ID) | NODE_LOST;
	}
	t->key.parent = parent & NODE_ID;
	found = bpf_map_lookup_elem(&node_ids, &t->key);
	id = found ? *found : make_node(t);
	n = id ? bpf_map_lookup_elem(&nodes, &id) : 0;
	if (!n) {
		count_overflow(parent, EXACT_NO_NODE);
		return (parent & NODE_ID) | NODE_LOST;
	}
	n->calls++;
	return id;
}
