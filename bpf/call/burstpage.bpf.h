/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What kernel side, guests and user space share to sample bursts of calls: a page with every guest,
 * and maps that guests do not see.
 */
#pragma once

#include "record/call.h"
#include "kernel/maps.bpf.h"
#include "record/operand.h"

#define MAX_PAGE_GUESTS 256 /* a page of memory and a few descriptors each */
#define MAX_BURST_SITES 4096
#define PAGE_SLOTS 60	    /* what fits a page, at a cache line each */

#define SLOT_ARMED 1u /* VMPROF_ARMED of contrib/guest/vmprof.h */

/*
 * One thread's part of the page, a cache line. Its thread counts in it; contrib/guest/vmprof.h has
 * the guest's side.
 */
struct vmprof_slot {
	/*
	 * SLOT_ARMED: a burst is on. Set last here, and cleared by the guest at the burst's end.
	 * Other bits are the guest's
	 */
	__u32 armed;
	__u32 skip;  /* calls until the next sample, that one included */
	__u32 left;  /* samples until the burst's end */
	__u32 stride;
	__u32 burst; /* number of the burst, for people who look at pages */
	__u32 pad[11];
};

struct vmprof_page {
	__u32 reserved[64];
	struct vmprof_slot slots[PAGE_SLOTS];
};

/* A process that mapped a page. */
struct burst_guest {
	__u64 start_ticks; /* event_header.start in 10 ms: guards against a reused pid */
	__u32 serial;	   /* unique among all connections to this agent, never 0 */
	__u32 pad;
};

/*
 * What a guest's thread owns and may do. Only its own thread and ticks that interrupt it come here.
 */
struct burst_thread {
	__u64 burst;  /* bursts so far */
	__u32 serial; /* burst_guest.serial; 0: the thread has no slot */
	__u32 exec;   /* event_header.exec: another program has another page */
	__u32 slot;
	/* Of the burst. */
	__u32 credit;	/* calls that may still be reported */
	__u32 stride;
	__u32 made;	/* calls to the next sample, from the tick that began the burst */
	__u32 ticks;	/* since then, that one included */
	__u32 pad;
	__u64 runtime, since, migrations; /* burst_mark at that tick */
	struct call call; /* the record that its thread builds: nobody waits for it if that is preempted meanwhile */
};

/* How much to sample, from the next tick on. */
struct burst_rate {
	__u32 stride;	 /* at least 1 */
	__u32 samples;	 /* 0: none */
	__u32 calibrate; /* one burst of so many has stride 1, to learn what a hit costs; 0: none has */
	__u32 pad;
};

/* What it cost the guests. */
struct burst_cost {
	__u64 hits;    /* calls reported: beyond their credit guests waste their own time */
	__u64 skipped; /* calls between those, that the guests' stubs counted */
	__u64 ticks;   /* that interrupted guests */
	__u64 tick_ns; /* of those, in the program */
};

enum burst_probe {
	BURST_CALL = 1,	  /* vmprof:call(callee, return address) */
	BURST_THREAD,	  /* vmprof:thread(slot): the current thread owns it */
	BURST_THREAD_END, /* vmprof:thread_end(slot) */
};

/* A probe of one guest in one file. */
struct burst_site {
	struct operand first, second; /* the probe's arguments */
	__u32 pid;		      /* whose probe: single probes serve all that map the file */
	__u8 probe;		      /* enum burst_probe */
	__u8 pad[3];
};

struct page_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vmprof_page);
};

/*
 * key: pid of a guest; value: the map that holds its page and nothing else, since the guest gets a
 * descriptor of it
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, MAX_PAGE_GUESTS);
	__type(key, __u32);
	__array(values, struct page_map);
} pages SEC(".maps");

/* key: pid of a guest */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PAGE_GUESTS);
	__type(key, __u32);
	__type(value, struct burst_guest);
} page_guests SEC(".maps");

/* Goes with its thread: nothing to tidy up, and no thread id to be mistaken in. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct burst_thread);
} burst_threads SEC(".maps");

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst_rate);
} burst_rates SEC(".maps");

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct burst_cost);
} burst_costs SEC(".maps");

static __always_inline struct burst_cost *this_cost(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&burst_costs, &zero);
}
