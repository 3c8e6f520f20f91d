/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel side and user space send each other: this and the headers of the same kind
 * (sample.h, observation.h, offcpu.h, runtime.h, call.h, exact.h, counter.h, hotspot.h, cpython.h,
 * operand.h) define records of both directions once. Go's structs are generated from them. Integers are in host byte
 * order; times are ns of CLOCK_MONOTONIC unless said otherwise.
 *
 * Here: what records have in common, and those of processes and their code.
 */
#pragma once

#include <linux/types.h>

enum event_kind {
	EVENT_SAMPLE = 1,   /* struct sample */
	EVENT_CODE_LOAD,    /* struct code_load: a compilation was installed */
	EVENT_PROCESS_EXEC, /* struct process_event */
	EVENT_PROCESS_EXIT, /* struct process_event: its last thread is gone */
	EVENT_CALL,	    /* struct call: a call that an engine sampled */
	EVENT_NAMED_CALL,   /* struct named_call: a call that an engine sampled, with names that were read at once */
	EVENT_NEW_METHOD,   /* struct new_method (exact.h): a method that was not called before */
	EVENT_OBSERVED,	    /* struct sample, and a struct observation behind its frames: what a probe saw, and where */
	EVENT_FULL_SAMPLE,  /* struct sample, and behind its frames the __u64 tag of no frame: others may refer to it */
	EVENT_SHORT_SAMPLE, /* struct short_sample */
	EVENT_INVOCATION,   /* struct invocation: one of a method has ended */
	EVENT_THREAD_END,   /* struct thread_end (runtime.h): the run time of a thread that has ended */
	EVENT_VM_THREAD_END, /* struct ended_thread: a thread of a VM is about to end, or all of them with the VM */
};

/*
 * Every event begins with this. {pid, start, exec} is the identity of a process: pids are reused.
 */
struct event_header {
	__u64 time;
	__u64 start; /* of the process: ns, CLOCK_BOOTTIME */
	__u32 pid, tid;
	__u32 exec; /* how often the process had called exec, low 32 bits */
	__u8 kind;  /* enum event_kind */
	__u8 stopped; /* samples: 1 if the VM had stopped its Java threads, as far as safepoints are recorded */
	/*
	 * samples: frames between the innermost and the ROOT_FRAMES outermost ones, 0 if all are
	 * there
	 */
	__u16 left_out;
};

#define MAX_CLASS_NAME 192
#define MAX_METHOD_NAME 96
#define MAX_SIGNATURE 160

struct code_load {
	struct event_header header;
	__u64 begin;	/* first instruction */
	__u32 size;	/* bytes, as announced */
	__u32 compile_id; /* 0 if the VM was not attached */
	__u16 class_len, name_len, signature_len; /* bytes used below */
	__u16 pad;
	__u8 class_name[MAX_CLASS_NAME];
	__u8 method_name[MAX_METHOD_NAME];
	__u8 signature[MAX_SIGNATURE];
};

struct process_event {
	struct event_header header;
	__u8 comm[16];
};

enum invocation_end {
	INVOCATION_RETURNED,
	INVOCATION_UNWOUND, /* it was over when the thread was seen next: an exception, or its code was deoptimised */
};

/* Its thread is that of the header, and its end is the header's time. */
struct invocation {
	struct event_header header;
	__u64 begun;
	__u64 sp;     /* at the entry */
	__u64 ran;    /* ns on a CPU, if known */
	__u64 waited; /* ns for a CPU */
	__u8 end;     /* enum invocation_end */
	__u8 known;   /* ran is */
	__u8 pad[6];
};

/* What a thread of a VM has allocated when it ends. Its VM still lists it for a moment. */
struct ended_thread {
	struct event_header header;
	__u64 thread;	 /* JavaThread*; 0: the VM ends, and there were records of all threads that it lists */
	__u64 allocated; /* bytes since it started */
	/*
	 * of these, the ones up to the last that an observed allocation may stand for; all ones:
	 * not known
	 */
	__u64 sited;
	__u32 own_tid;	 /* as the thread sees it itself */
	__u32 pad;
};
