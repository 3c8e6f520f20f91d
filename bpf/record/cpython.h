/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What user space says of an attached CPython interpreter. */
#pragma once

#include "record/hotspot.h"

enum cpython_flags {
	CPYTHON_CFRAME = 1 << 0,   /* 3.11, 3.12: thread_frame leads to a structure that leads to the frame */
	/* 3.11 and later: frame_at is the address of an instruction, else a number of them */
	CPYTHON_ADDRESS = 1 << 1,
	CPYTHON_BYTES = 1 << 2,	   /* 3.9: that number counts bytes */
	CPYTHON_ENTRY_EACH = 1 << 3, /* before 3.11: the interpreter's loop runs one frame */
	CPYTHON_ENTRY_FLAG = 1 << 4, /* 3.11: a byte of a frame says that the loop began with it */
	CPYTHON_ENTRY_SHIM = 1 << 5, /* 3.12 and later: a byte of a frame says that it is only there for that */
};

/* in hotspot_process.flags: the record is a struct cpython_process */
#define PROCESS_CPYTHON (1u << 31)
/* code offset of the FRAME_STUB that stands for a wait for the global interpreter lock */
#define CPYTHON_GIL 1
#define CPYTHON_OWNED_BY_C 3 /* least owner of a frame that runs no code of the program */

/*
 * One attached interpreter, as one of the forms that a record in the map of processes has: it
 * begins as struct hotspot_process does, with a code cache that is empty. What is not for this form
 * sees a VM without code and without threads. Offsets are in bytes.
 */
struct cpython_process {
	__u64 start_ticks;
	__u32 serial;
	__u32 slot;
	__u32 flags; /* PROCESS_CPYTHON */
	__u32 form;  /* enum cpython_flags */
	__u64 code_low, code_high; /* 0 */

	__u64 interpreters; /* where the pointer to the first interpreter is */
	__u64 code_type;    /* what the type of a code object is */
	__u64 eval_low, eval_high; /* the interpreter's loop */
	__u64 gil;	    /* address of the lock, before 3.12; 0 otherwise */
	__u32 gil_size;	    /* bytes */

	__u32 interpreter_next, interpreter_threads; /* PyInterpreterState */
	__u32 interpreter_gil; /* PyInterpreterState: pointer to its lock, from 3.12 on */
	__u32 thread_next, thread_interpreter, thread_id, thread_frame; /* PyThreadState; thread_id is pthread_self() */
	__u32 cframe_frame;    /* with CPYTHON_CFRAME */
	__u32 frame_bytes;     /* of a frame, which are read: all of the following are there */
	__u32 frame_code, frame_previous, frame_at, frame_entry;
	__u32 code_bytes;      /* of a code object, likewise */
	__u32 object_type, code_first, code_file, code_name, code_lines; /* of a code object; aligned words */
	/* with CPYTHON_ADDRESS: of its instructions, and of how many there are, 2 bytes each */
	__u32 code_begin, code_units;
};

_Static_assert(sizeof(struct cpython_process) <= sizeof(struct hotspot_process), "one form of a record");
#define SAME_PLACE(field) \
	_Static_assert(__builtin_offsetof(struct cpython_process, field) == \
			       __builtin_offsetof(struct hotspot_process, field), #field)
SAME_PLACE(flags);
SAME_PLACE(slot);
SAME_PLACE(code_low);
SAME_PLACE(code_high);

#define PYTHON_FRAME_WORDS 16 /* a power of two: of a frame */
#define PYTHON_CODE_WORDS 32  /* a power of two: of a code object */
