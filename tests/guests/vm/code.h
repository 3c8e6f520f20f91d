/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled programs. */
#pragma once

#include "bytecode.h"

#include "vmprof.h"

#include <stddef.h>

/* The data of a thread that its compiled code uses. The compilers know the layout. */
struct context {
	struct vmprof_slot *slot; /* checked in prologues */
	uint64_t *fields;	  /* [MAX_FIELDS] */
	uint64_t *counters;	  /* [counter_count] of the code, if it counts */
};

/* One method's piece of code. */
struct compiled {
	uint8_t *begin;
	uint32_t size;
	uint32_t site_count;
	struct vmprof_site *sites; /* one per call instruction, in their order */
};

/* How methods begin. */
enum prologue {
	CHECKED, /* with the check whether their thread is sampled */
	YIELDING, /* with the VM's own check whether their thread should yield, which is that of CHECKED too */
	PADDED,	 /* with a NOP as long as the check, to separate its cost from that of its bytes */
	BARE,
};

/*
 * One compilation of all methods of a program. Every call instruction has a counter if the code counts; one that
 * dispatches has MAX_CLASSES in a row.
 */
struct code {
	const struct program *program;
	enum prologue prologue;
	int count;	      /* calls are counted */
	const uint8_t *yield; /* where YIELDING methods go to */
	uint8_t *memory;
	size_t size;
	struct compiled *methods;     /* [program->method_count] */
	uint8_t **vtable[MAX_SELECTORS]; /* [class]: where methods begin; compiled code reads it */
	uint32_t counter_count;
};

/* Compiles a program. Ends the process if there is no compiler for this machine. */
struct code *compile(const struct program *p, enum prologue prologue, int count);

/* Calls a method of compiled code, from its method ENTER. */
uint64_t enter(const struct code *c, uint32_t method, uint64_t argument, struct context *context);

/* Registers all methods of the code with the agent. Method m has the id m + 1. */
void announce(const struct code *c);

/* Unregisters the code with the agent, and frees it. No thread may be in it. */
void discard(struct code *c);
