/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What probes see. */
#pragma once

#include <linux/types.h>

/*
 * What a probe saw, and what values hold of it. Text is the class of the object, in the VM's form,
 * unless said otherwise.
 */
enum observed {
	OBSERVED_ALLOCATION = 1, /* bytes of the object; bytes of all objects that it stands for; the JavaThread */
	OBSERVED_MONITOR,	 /* ns in ObjectMonitor::enter; the lock (struct lock_wait), 0 if unknown */
	OBSERVED_PARK,		 /* ns in Unsafe.park; the lock */
	/*
	 * what struct probed_values asks for. The value of a text is where it is in text << 32 |
	 * its bytes
	 */
	OBSERVED_VALUES,
	/* ns from the order to stop until Java threads may go on; text is struct pause_cause */
	OBSERVED_PAUSE,
	OBSERVED_FAULT,		 /* the data address; the pc; text is struct registers */
	/*
	 * how many events of a CPU's counter it stands for; the probe's number identifies the
	 * counter
	 */
	OBSERVED_OVERFLOW,
	OBSERVED_WAIT,		 /* a thread was off the CPU: see enum wait_values; flags are an enum off_cpu_state */
	/*
	 * who ended a wait, before its record: see enum waker_values; flags are of enum
	 * waker_flags; text is the process's comm
	 */
	OBSERVED_WAKER,
	/*
	 * address of a card in G1's table; 1 if the thread had no queue; text is struct registers,
	 * and words of the stack
	 */
	OBSERVED_CARD,
	/*
	 * a virtual thread begins to wait: its number; the time, ns. With SEEN_CONTENDED it is for
	 * a monitor, else parked
	 */
	OBSERVED_FREEZE,
	/*
	 * it goes on: its number; when the wait began, ns; for how long it waited, ns. There is no
	 * stack
	 */
	OBSERVED_THAW,
	OBSERVED_RELEASE,	 /* the lock, which this thread has left and for which another one waits */
	OBSERVED_EXCEPTION,	 /* an exception gets its stack trace, once as a rule: no values */
};

enum seen_flags {
	SEEN_OUTSIDE = 1 << 0,	 /* ALLOCATION: not in a thread's buffer (TLAB) */
	SEEN_CONTENDED = 1 << 1, /* MONITOR: it was not free */
	SEEN_SPUN = 1 << 2,	 /* MONITOR: acquired while spinning */
	SEEN_COLLECTION = 1 << 3, /* PAUSE: garbage was collected */
	SEEN_CUT = 1 << 4,	 /* text did not fit */
};

/* Where an object is. */
enum heap_place {
	PLACE_UNKNOWN = 0,
	PLACE_YOUNG, /* where objects are allocated */
	PLACE_SURVIVOR,
	PLACE_OLD,
	PLACE_HUMONGOUS,
};

#define MAX_CAUSE 64 /* bytes of a name */

/*
 * Why a VM stopped its Java threads. Names are cut at the end, or padded with zeroes; empty if
 * unknown.
 */
struct pause_cause {
	__u8 operation[MAX_CAUSE]; /* of the VM: G1CollectForAllocation */
	__u8 collector[MAX_CAUSE]; /* the memory manager that collects garbage meanwhile: G1 Young Generation */
};

#define MAX_OBSERVED_VALUES 8
#define MAX_OBSERVED_TEXT 480 /* bytes */

/* Behind the frames of an EVENT_OBSERVED. text_len bytes of text follow it, padded to 8. */
struct observation {
	__u8 what;  /* enum observed */
	__u8 place; /* enum heap_place, of the object */
	__u8 flags; /* enum seen_flags */
	__u8 count; /* of values */
	__u16 text_len;
	__u8 failed; /* VALUES: bit i is set if value i could not be read */
	__u8 cut;    /* VALUES: bit i is set if value i is a text that did not fit */
	__u32 probe; /* what it was attached as: the cookie */
	__u32 every; /* executions that this one stands for */
	__u32 stops; /* how often the VM had stopped its Java threads: objects do not move between stops, if at all */
	__u32 pad2;
	__u64 object; /* its address, 0 if unknown */
	__u64 values[MAX_OBSERVED_VALUES];
};
