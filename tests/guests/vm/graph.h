/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact call graph. Nothing is counted while a program runs: every iteration makes the same calls, so they are
 * counted once, in a copy of the code that counts, and multiplied. Code that always counts gives the same result.
 */
#pragma once

#include "code.h"

#include <stdio.h>

/* How often each edge was called. */
struct graph {
	const struct program *program;
	uint64_t *counters;		  /* as in struct code */
	uint32_t counter_count;
	uint64_t roots[MAX_PHASES];	  /* calls of the phases' roots */
};

struct graph *new_graph(const struct code *c);
void free_graph(struct graph *g);

/* The calls of one call of the phase's root. The code must count. */
struct graph *count_phase(const struct code *counting, uint32_t phase);

/* Adds times other to g. */
void add_graph(struct graph *g, const struct graph *other, uint64_t times);

/* Prints "edge", caller, line of the call, callee, calls, with tabs between, for every edge that was called. */
void print_graph(const struct graph *g, FILE *to);
