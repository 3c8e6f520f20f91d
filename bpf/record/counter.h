/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the kernel side counts. */
#pragma once

#include <linux/types.h>

/*
 * Per-CPU counters; user space sums them. Identities hold when no program runs:
 * ATTEMPTED == DELIVERED + all DROPPED, for samples, for events and for calls.
 *
 * Those before TICK_COUNTERS are counted at every sample, so they are together in few cache lines.
 * All programs that walk count those from STACK_COPIES to WORDS_SCANNED, WALKS_CUT and
 * UNWIND_FRAMES.
 */
enum counter {
	SAMPLES_ATTEMPTED,
	SAMPLES_DELIVERED,
	RING_BYTES,	 /* of delivered samples */
	NS_TOTAL,	 /* in the tick program */
	NS_JAVA,	 /* for samples of Java threads */
	SAMPLES_JAVA,	 /* of Java threads */
	FRAMES_JAVA,	 /* user frames of those */
	STACK_COPIES,	 /* pieces of stack copied */
	SEGMENT_MISSES,	 /* code segments looked up the slow way */
	WORDS_SCANNED,	 /* words of stacks that were searched for return addresses, as SCAN_BUDGET counts them */
	SAMPLES_LINKED,	 /* with SAMPLE_LINK */
	SAMPLES_PARTIAL, /* that share frames with the thread's previous one */
	TICKS_IDLE,
	TICKS_FILTERED,
	WALKS_CUT,	 /* walks that ended as they took too long: END_TIME */
	UNWIND_FRAMES,	 /* native frames that unwind tables led out of */
	TICK_COUNTERS = 16,
	SAMPLES_DROPPED_RING_FULL = TICK_COUNTERS,
	/*
	 * another CPU uses the memory, which they share: both came online after the maps were sized
	 */
	SAMPLES_DROPPED_NO_SCRATCH,
	EVENTS_ATTEMPTED, /* everything that is not a sample */
	EVENTS_DELIVERED,
	EVENTS_DROPPED_RING_FULL,
	EVENTS_DROPPED_BUSY, /* working memory in use: too many threads announce code at once */
	CODE_UNLOADS,	 /* announcements that code or classes went away */
	CALLS_ATTEMPTED, /* calls that an engine sampled */
	CALLS_DELIVERED,
	CALLS_DROPPED_RING_FULL,
	CALLS_DROPPED_NO_DRAFT, /* no memory to write one of a new thread */
	CALL_HITS,	 /* every time a call engine's program ran in a guest, sampled or not */
	CALL_HITS_REFUSED, /* beyond what was armed: a guest that writes into its page, or a late disarming */
	BURSTS_ARMED,
	BURSTS_SKIPPED,	 /* ticks that found the thread's burst unfinished, or no room to arm it */
	NS_CALLS,	 /* in the call engines' programs */
	STACKS_DISPLACED, /* previous stacks forgotten because another thread's took their place */
	/*
	 * every time a probe of allocations, waits, values, write barriers or page faults ran in a
	 * guest, recorded or not, and the last one of a pause
	 */
	PROBE_HITS,
	/* == DELIVERED + all DROPPED; objects that are only counted (exact) are not among them */
	OBSERVATIONS_ATTEMPTED,
	OBSERVATIONS_DELIVERED,
	OBSERVATIONS_DROPPED_RING_FULL,
	/*
	 * working memory in use, by a program that was preempted on this CPU; a wait of a thread
	 * that went on unseen
	 */
	OBSERVATIONS_DROPPED_BUSY,
	OBSERVATIONS_DROPPED_TABLE_FULL, /* too many threads wait, or classes are counted, at once */
	NS_PROBES, /* in the programs of these probes */
	METHODS_CHANGED, /* Method structures that were met as another method than before */
	/*
	 * of PROBE_HITS, allocations and waits in processes whose VM was not attached yet: nothing
	 * was recorded
	 */
	HITS_UNATTACHED,
	THREADS_REFUSED, /* times that a JavaThread found no room in the known_threads map */
	/*
	 * times that a thread came back to a CPU, of those that were seen to leave: WAITS_THINNED +
	 * observations attempted of them, without those of wakers
	 */
	WAITS_SEEN,
	WAITS_THINNED,	/* of these, the ones that were not drawn for a record */
	WAITS_SKIPPED,	/* times that a thread which switches often left its CPU, and that wait was not followed */
	WAITS_REFUSED,	/* times that a thread was to be followed, and there were too many, or no memory for one */
	/*
	 * what the waits that were drawn stand for: of each the time, or the mean interval if that
	 * is longer
	 */
	NS_WAITS_DRAWN,
	NS_WAITS_LOST,	/* of these, in records that were dropped */
	WAKINGS_SEEN,	/* with wakers: times that a thread was woken, of those that were seen to leave */
	WAKERS_DRAWN,	/* of these, the ones that a record of the waker was begun for */
	WAKERS_LOST,	/* of those records, the dropped ones */
	PROCESSES_REFUSED, /* children of chosen processes that found no room in the pids map: they are not sampled */
	/*
	 * threads of VMs whose end found no room in the ring, or was one of too many as the VM
	 * ended
	 */
	THREAD_ENDS_DROPPED,
	UNWIND_MISSES,	/* of UNWIND_FRAMES, those whose rule had to be looked up in a table */
	UNWIND_UNTABLED, /* walks that came to code without a frame pointer that has no table yet */
	/*
	 * walks of processes that had loaded or unloaded code, or executed another program, since
	 * they got their tables
	 */
	UNWIND_STALE,
	UNWIND_GONE,	/* frames whose table had been given up for others */
	UNWIND_UNSUPPORTED, /* walks that ended at code whose rule no table can state */
	UNWIND_BROKEN,	/* walks that ended as a table led to where no frame can be */
	/*
	 * requests for tables, and children of processes that have some, for which there was no
	 * room
	 */
	UNWIND_REFUSED,
	UNWIND_YOUNG,	/* of UNWIND_UNTABLED, walks of processes too young to get a table */
	COUNTER_COUNT,
};
