/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Sampled calls. */
#pragma once

#include "record/event.h"

/* What sampled a call. */
enum call_engine {
	ENGINE_PAGE = 1,
	ENGINE_LISTENER,
	ENGINE_USDT,
	ENGINE_BRANCH,
};

/*
 * One sampled call. What callee and caller hold depends on the engine:
 *
 *              callee                                caller
 *   PAGE       the method's id, as registered        return address
 *   LISTENER   a frame: the entry point              a frame: the call site (both as in struct sample)
 *   BRANCH     where the call went                   address of the call instruction
 */
struct call {
	struct event_header header;
	__u64 callee, caller;
	__u64 burst;	   /* the calls of one burst of one thread carry the same number */
	__u32 class_epoch; /* times the VM had unloaded classes */
	__u32 attachment;  /* hotspot_process.serial, 0 if none; PAGE: burst_guest.serial */
	__u8 engine;	   /* enum call_engine */
	__u8 pad[3];
	__u32 callee_depth, caller_depth; /* LISTENER: as in struct sample, 0 where unknown */

	/* PAGE: where in its burst the sample is; 0 from engines that do not know */
	__u32 stride; /* calls from one sample to the next */
	__u32 made;   /* calls from the tick to this one */
	__u32 ticks;  /* of the thread, since the one that began the burst, that one included */
	__u64 spent;  /* ns of CPU time of the thread since that one */
};

#define MAX_CALL_NAME 96
#define MAX_CALL_FILE 192

/* Strings end with a zero byte and are cut to fit. */
struct named_call {
	struct event_header header;
	__u64 burst;
	__u32 caller_line; /* of the call */
	__u8 engine;	   /* enum call_engine */
	__u8 caller_unknown; /* 1: the probe does not say who called; 0 and no name of a caller: nobody did */
	__u8 language; /* as user space numbers them */
	__u8 pad;
	__u8 callee_class[MAX_CALL_NAME], callee_name[MAX_CALL_NAME];
	__u8 caller_class[MAX_CALL_NAME], caller_name[MAX_CALL_NAME];
	__u8 callee_file[MAX_CALL_FILE], caller_file[MAX_CALL_FILE];

	/* where in its burst the sample is */
	__u32 left;  /* samples to come */
	__u32 ticks; /* of the process since the one that began the burst, that one included */
	__u32 gaps;  /* from one call to the next so far, in which the thread kept its CPU */
	__u32 least; /* ns: the shortest of them, UINT_MAX if there is none */
	__u64 spent; /* ns in all of them: the guest's own work, and its way into the kernel and back */
};
