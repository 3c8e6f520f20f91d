/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What exact tracing of calls keeps in maps, and what user space reads there: the only definition.
 * Nothing is sent for a call; only a method that was never seen before is announced, so that it is
 * named while it exists.
 */
#pragma once

#include "record/event.h"

/*
 * A node of the calling context tree. Nodes are numbered from 1, parents before children; 0 is
 * none. The roots are the threads: their parent is 0, and struct exact_thread describes them. Only
 * its thread writes to a node.
 */
struct exact_node {
	__u64 method;	   /* Method*; of a root the tid */
	__u32 parent;
	__u32 class_epoch; /* times the VM had unloaded classes when the node was made: Method structures are reused */
	__u64 calls;	   /* of this method in this context */
	/*
	 * calls further in that found no room for their own context; this is the deepest known one
	 */
	__u64 overflow;
};

/* How a node is found. */
struct exact_node_key {
	__u64 method;
	__u32 parent;
	__u32 class_epoch;
};

/* An edge of the call graph, with the place of the call. */
struct exact_edge {
	__u64 callee;	   /* Method* */
	__u64 caller;	   /* Method*; 0 if the caller was entered before recording, or there is none */
	/*
	 * a frame (sample.h): return address of the callee's frame; if inlined, place in the code
	 * around
	 */
	__u64 site;
	__u32 class_epoch; /* of both methods */
	__u32 inlined;	   /* 1 if the callee has no frame of its own */
};

/* How often objects of a class were allocated in a context, which only its thread counts. */
struct exact_objects_key {
	__u64 klass;
	__u32 node;	   /* with EXACT_LOST the deepest node known of a context that found no room */
	__u32 class_epoch; /* of the class */
};

struct exact_objects {
	__u64 objects, bytes;
};

#define EXACT_LOST (1u << 31)

/*
 * Every method that was called, once in every class epoch: that is how often its name must be read.
 */
struct exact_method {
	__u64 method;
	__u32 class_epoch;
	__u32 pad;
};

/* EVENT_NEW_METHOD */
struct new_method {
	struct event_header header;
	__u64 method;
	__u32 class_epoch;
	__u32 attachment; /* hotspot_process.serial */
};

/* A thread that called something. */
struct exact_thread {
	__u64 start; /* ns, CLOCK_BOOTTIME */
	__u32 tid;
	__u8 complete; /* it started under recording: its contexts reach back to its first call */
	__u8 pad[3];
	__u8 comm[16]; /* when it ended; if it has not, when it called first */
};

/*
 * Per-CPU counters; user space sums them. When no program runs,
 * EXACT_ENTRIES == sum of exact_node.calls + sum of exact_node.overflow + EXACT_NO_THREAD, and
 * sum of exact_node.overflow == EXACT_NO_NODE + EXACT_TOO_DEEP;
 * EXACT_OBJECTS == sum of exact_objects.objects + EXACT_NO_OBJECT.
 */
enum exact_counter {
	EXACT_ENTRIES,	 /* calls */
	EXACT_EXITS,	 /* returns, those by exceptions included */
	EXACT_NO_THREAD, /* calls on threads that found no room in the threads map: they are in no tree */
	EXACT_NO_NODE,	 /* calls whose context found no room */
	EXACT_TOO_DEEP,	 /* calls below EXACT_DEPTH frames */
	EXACT_NO_EDGE,	 /* calls whose edge found no room */
	EXACT_NO_METHOD, /* new methods that found no room in the methods map: they are not named */
	EXACT_NO_RECORD, /* threads that found no room in the thread_records map: they have no name */
	EXACT_UNPLACED,	 /* calls and returns from code that is not understood: trusted to be in order */
	EXACT_UNWOUND,	 /* frames that ended without a return of their own */
	EXACT_STRAY,	 /* returns of frames that were never entered, and not before recording either */
	EXACT_BEFORE,	 /* returns of frames that were entered before recording */
	EXACT_OBJECTS,	 /* allocated objects, if they are counted */
	EXACT_NO_OBJECT, /* objects without a thread, a class, or room in the allocations map */
	EXACT_COUNTER_COUNT,
};

#define EXACT_DEPTH 4096   /* frames of a thread whose context is known, a power of two */
#define EXACT_SEGMENTS 256 /* code segments that a thread remembers, a power of two */
