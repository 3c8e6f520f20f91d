/* SPDX-License-Identifier: Apache-2.0 */
#include "graph.h"

#include "memory.h"
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>

struct graph *new_graph(const struct code *c)
{
	struct graph *g = zeroed(1, sizeof(*g));

	g->program = c->program;
	g->counter_count = c->counter_count;
	g->counters = zeroed(g->counter_count, sizeof(*g->counters));
	return g;
}

void free_graph(struct graph *g)
{
	free(g->counters);
	free(g);
}

struct graph *count_phase(const struct code *counting, uint32_t phase)
{
	struct graph *g = new_graph(counting);
	uint64_t fields[MAX_FIELDS] = {0};
	struct context context = {.fields = fields, .counters = g->counters};

	enter(counting, g->program->phases[phase].root, 1, &context);
	g->roots[phase] = 1;
	return g;
}

void add_graph(struct graph *g, const struct graph *other, uint64_t times)
{
	for (uint32_t i = 0; i < g->counter_count; i++)
		g->counters[i] += times * other->counters[i];
	for (uint32_t i = 0; i < MAX_PHASES; i++)
		g->roots[i] += times * other->roots[i];
}

static void print_edge(const struct graph *g, FILE *to, uint32_t caller, uint32_t line, uint32_t callee, uint64_t calls)
{
	if (calls > 0)
		fprintf(to, "edge\t%s\t%u\t%s\t%" PRIu64 "\n", g->program->methods[caller].name, line,
			g->program->methods[callee].name, calls);
}

void print_graph(const struct graph *g, FILE *to)
{
	const struct program *p = g->program;
	const uint64_t *counter = g->counters;

	for (uint32_t i = 0; i < p->phase_count; i++)
		print_edge(g, to, ENTER, line_of(&p->methods[ENTER], 0), p->phases[i].root, g->roots[i]);
	for (uint32_t m = ENTER + 1; m < p->method_count; m++) {
		for (uint32_t i = 0; i < p->methods[m].length; i++) {
			const struct instruction *in = &p->methods[m].code[i];
			uint32_t line = line_of(&p->methods[m], i);

			if (in->op == OP_CALL)
				print_edge(g, to, m, line, (uint32_t)in->a, *counter++);
			for (uint32_t class = 0; in->op == OP_VCALL && class < MAX_CLASSES; class++)
				print_edge(g, to, m, line, p->vtable[in->a][class], *counter++);
		}
	}
}
