/* SPDX-License-Identifier: Apache-2.0 */
#include "crew.h"

#include "memory.h"
#include "yield.h"

#include <pthread.h>
#include <time.h>

struct worker {
	pthread_t thread;
	struct crew *crew;
	uint32_t index;
	uint64_t fields[MAX_FIELDS];
	struct graph *counted; /* if the code counts */
	uint64_t iterations;   /* since the graph was asked for */
	uint64_t done;	       /* iterations, ever */
	uint64_t checksum;
	/* what to do now */
	uint64_t want;	   /* iterations, 0: until the deadline */
	uint64_t deadline; /* ns, CLOCK_MONOTONIC */
};

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether a worker's iterations have this phase. */
static int has_phase(const struct worker *w, uint32_t phase)
{
	const struct program *p = w->crew->program;

	return !p->spread || w->index % p->phase_count == phase;
}

static void iterate(struct worker *w, struct context *context)
{
	const struct program *p = w->crew->program;

	for (uint32_t i = 0; i < p->phase_count; i++) {
		if (!has_phase(w, i))
			continue;
		for (uint32_t n = 0; n < p->phases[i].times; n++) {
			uint64_t result = enter(w->crew->code, p->phases[i].root, w->done + n, context);

			w->checksum = (w->checksum << 1 | w->checksum >> 63) ^ result;
		}
		if (w->counted)
			w->counted->roots[i] += p->phases[i].times;
	}
	w->done++;
	w->iterations++;
}

static void *labour(void *worker)
{
	struct worker *w = worker;
	struct context context = {
		.slot = yield_begin(), .fields = w->fields, .counters = w->counted ? w->counted->counters : NULL};
	uint64_t last = w->done + w->want;

	while (w->want ? w->done < last : now(CLOCK_MONOTONIC) < w->deadline)
		iterate(w, &context);
	if (w->index > 0)
		yield_end(); /* the first worker's thread lives on */
	return NULL;
}

void hire(struct crew *crew, struct code *code, const struct code *counting, uint32_t threads)
{
	*crew = (struct crew){
		.program = code->program, .code = code, .counting = counting, .thread_count = threads,
		.workers = zeroed(threads, sizeof(*crew->workers))};
	for (uint32_t i = 0; i < threads; i++) {
		crew->workers[i] = (struct worker){.crew = crew, .index = i};
		for (uint32_t f = 0; f < MAX_FIELDS; f++)
			crew->workers[i].fields[f] = f + i;
		if (code->count)
			crew->workers[i].counted = new_graph(code);
	}
}

struct segment run(struct crew *crew, uint64_t iterations, double seconds)
{
	uint64_t cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
	struct segment s = {0};

	for (uint32_t i = 0; i < crew->thread_count; i++) {
		struct worker *w = &crew->workers[i];

		s.iterations -= w->done;
		w->want = iterations;
		w->deadline = wall + (uint64_t)(seconds * 1e9);
		if (i > 0 && pthread_create(&w->thread, NULL, labour, w) != 0)
			die("no thread %u", i);
	}
	labour(&crew->workers[0]);
	for (uint32_t i = 0; i < crew->thread_count; i++) {
		if (i > 0)
			pthread_join(crew->workers[i].thread, NULL);
		s.iterations += crew->workers[i].done;
		s.checksum += crew->workers[i].checksum;
	}
	s.cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	s.wall = now(CLOCK_MONOTONIC) - wall;
	return s;
}

void recompile(struct crew *crew)
{
	struct code *old = crew->code;

	crew->code = compile(old->program, old->prologue, old->count);
	if (crew->counting == old)
		crew->counting = crew->code;
	if (old->prologue == CHECKED || old->prologue == YIELDING)
		announce(crew->code);
	discard(old);
}

struct graph *graph_since(struct crew *crew)
{
	const struct program *p = crew->program;
	struct graph *sum = new_graph(crew->counting);

	for (uint32_t phase = 0; phase < p->phase_count; phase++) {
		struct graph *once = crew->code->count ? NULL : count_phase(crew->counting, phase);

		for (uint32_t i = 0; once && i < crew->thread_count; i++)
			if (has_phase(&crew->workers[i], phase))
				add_graph(sum, once, crew->workers[i].iterations * p->phases[phase].times);
		if (once)
			free_graph(once);
	}
	for (uint32_t i = 0; i < crew->thread_count; i++) {
		struct worker *w = &crew->workers[i];

		w->iterations = 0;
		if (!w->counted)
			continue;
		add_graph(sum, w->counted, 1);
		free_graph(w->counted);
		w->counted = new_graph(crew->counting);
	}
	return sum;
}
