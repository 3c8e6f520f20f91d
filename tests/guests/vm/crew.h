/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that run a program. */
#pragma once

#include "graph.h"

#include <stdint.h>

struct worker;

struct crew {
	const struct program *program;
	struct code *code;
	const struct code *counting;   /* a copy that counts, for the graph; code itself if that counts */
	uint32_t thread_count;
	struct worker *workers;	       /* [thread_count]; the first one works on the thread that calls run() */
};

/* The result of a segment of a run. */
struct segment {
	uint64_t iterations;   /* of all threads */
	uint64_t cpu, wall;    /* ns; cpu is of the whole process */
	uint64_t checksum;     /* of all results since the crew was hired */
};

/* code is the crew's own from then on. */
void hire(struct crew *crew, struct code *code, const struct code *counting, uint32_t threads);

/* Lets every thread do that many iterations or, if that is 0, as many as it can in that many seconds. */
struct segment run(struct crew *crew, uint64_t iterations, double seconds);

/* Compiles the program again, at another place. */
void recompile(struct crew *crew);

/* The calls since the crew was made or this was last called. */
struct graph *graph_since(struct crew *crew);
