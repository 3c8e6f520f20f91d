/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The maps of exact tracing, and what it keeps of a thread: its shadow stack, and room to work in.
 * uprobe programs are preempted, so nothing is kept per CPU; but a thread runs one of them at a
 * time, so that what is its own is safe. Keys of maps stand there too, not on the stack, which has
 * to stay small (see codemap.bpf.c).
 */
#pragma once

#include "record/exact.h"
#include "kernel/maps.bpf.h"

/* Of exact_frame.node: */
#define NODE_LOST EXACT_LOST	/* the frame's own context found no room, this is the deepest one known */
#define NODE_INLINED (1u << 30) /* the frame was inlined into the one before it when it was entered */
#define NODE_ID (NODE_INLINED - 1)

struct exact_frame {
	__u32 node;
	/*
	 * Low half of where the caller's frame ends; that of a method that is inlined is its
	 * inliner's.
	 */
	__u32 position;
	__u64 method;
};

#define FRAME_BY_BP 1 /* rbp points at the saved one, below the return address */

/* What is known of the code at an address. */
struct exact_segment {
	__u32 pc;    /* from code_low */
	__u32 epoch; /* of code, when this was read; then the code is still that */
	__u32 frame; /* bytes of its frames, or FRAME_BY_BP; 0 if it has none of a fixed size */
	__u32 compile_id; /* 0 if it is no compiled method */
};

struct exact_state {
	__u32 depth; /* frames, those beyond EXACT_DEPTH included */
	__u32 root;  /* node */
	__u32 slot;  /* of the VM, in epochs */
	__u32 events;
	__u64 interpreter_low, interpreter_high, code_low;
	__s64 sender_sp; /* of an interpreter's frame, from rbp */

	/* This event. */
	__u64 from, sp, bp;	   /* the method's code: address, stack and frame pointer */
	__u64 return_at, saved_bp; /* where its frame keeps the return address and the caller's rbp; 0 if unknown */
	__u64 caller;		   /* method of the frame below, 0 if unknown */
	__u32 position;		   /* as in exact_frame, 0 if unknown */
	__u32 code_epoch;
	struct exact_node_key key; /* with the method that was entered or left, and the class epoch */
	struct exact_edge edge;
	struct exact_method seen;
	struct exact_thread record;
	struct new_method announced;
	struct exact_objects_key made;

	struct exact_segment segments[EXACT_SEGMENTS];
	struct exact_frame frames[EXACT_DEPTH];
};

/* Maps are small here; the loader makes them as large as they are to be. */

/* key: tid of a thread that called something and lives */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct exact_state);
} threads SEC(".maps");

/* key: 0; what a new thread's state is copied from: it is too big for the stack */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exact_state);
} blank SEC(".maps");

/* key: root node of a thread, also of one that is gone */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct exact_thread);
} thread_records SEC(".maps");

/* value: the node's number */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct exact_node_key);
	__type(value, __u32);
} node_ids SEC(".maps");

/* key: the node's number */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct exact_node);
} nodes SEC(".maps");

/* value: calls */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct exact_edge);
	__type(value, __u64);
} edges SEC(".maps");

/* value: 1 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct exact_method);
	__type(value, __u8);
} methods SEC(".maps");

/* what the VM allocated, if that is counted */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct exact_objects_key);
	__type(value, struct exact_objects);
} allocations SEC(".maps");

/* key: enum exact_counter */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EXACT_COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} exact_counters SEC(".maps");

/* The VM's process. */
const volatile __u32 target = 0;

/* Size of nodes, node 0 included. */
const volatile __u32 max_nodes = 1024;

/* Whether edges are recorded besides the tree. */
const volatile bool record_edges = true;

/*
 * CLOCK_BOOTTIME, ns; 0 while nothing is recorded: the probes of calls and of returns are not
 * attached at once. Threads that started later are recorded from their first call on.
 */
__u64 recording_since = 0;

/* The last node that was made. */
__u32 last_node = 0;

static __always_inline void count_exact(__u32 which, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&exact_counters, &which);

	if (v)
		__sync_fetch_and_add(v, n);
}

static __always_inline struct exact_frame *frame_at(struct exact_state *t, __u32 i)
{
	barrier_var(i); /* the compiler may know that i is small enough, the verifier of 6.1 does not */
	return &t->frames[i & (EXACT_DEPTH - 1)];
}
