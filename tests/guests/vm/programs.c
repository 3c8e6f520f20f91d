/* SPDX-License-Identifier: Apache-2.0 */
/* The programs. An iteration takes 15 to 250 us of CPU; of phased, a quarter of a second. */
#include "programs.h"

#include "memory.h"

#include <string.h>

/* Few edges take most of the calls: of 1000, hot gets 889 from two sites, warm 110, and cold 1. */
static void skewed(struct program *p)
{
	uint32_t tiny = leaf(p, "tiny", 1), rare = leaf(p, "rare", 3);
	uint32_t hot = declare(p, "hot"), warm = declare(p, "warm"), cold = declare(p, "cold"), root = declare(p, "main");
	uint32_t outer, middle, inner;

	begin(p, hot);
	work(p, 2);
	call(p, tiny);
	put(p, OP_RETURN, 0, 0, 0);

	begin(p, warm);
	work(p, 4);
	call(p, tiny);
	put(p, OP_RETURN, 0, 0, 0);

	begin(p, cold);
	work(p, 8);
	call(p, rare);
	call(p, warm);
	put(p, OP_RETURN, 0, 0, 0);

	begin(p, root);
	put(p, OP_SET, 1, 16, 0);
	outer = here(p);
	call(p, cold);
	put(p, OP_SET, 2, 100, 0);
	middle = here(p);
	call(p, warm);
	put(p, OP_SET, 3, 4, 0);
	inner = here(p);
	call(p, hot);
	call(p, hot);
	loop(p, 3, inner);
	loop(p, 2, middle);
	loop(p, 1, outer);
	put(p, OP_RETURN, 0, 0, 0);
	phase(p, root, 1);
}

static void recursive(struct program *p) { phase(p, recursion(p), 2); }

static void virtual(struct program *p) { phase(p, dispatch(p), 2); }

static void flat(struct program *p) { phase(p, zipf(p), 1); }

/* Hardly any calls: 16 in some 100,000 instructions. */
static uint32_t computing(struct program *p)
{
	uint32_t step = leaf(p, "step", 4), root = declare(p, "compute"), outer, inner;

	begin(p, root);
	put(p, OP_SET, 1, 16, 0);
	outer = here(p);
	put(p, OP_SET, 2, 500, 0);
	inner = here(p);
	work(p, 4);
	loop(p, 2, inner);
	call(p, step);
	loop(p, 1, outer);
	put(p, OP_RETURN, 0, 0, 0);
	return root;
}

/* Almost only calls. */
static uint32_t calling(struct program *p)
{
	uint32_t get = leaf(p, "get", 0), set = leaf(p, "set", 1), root = declare(p, "access"), top;

	begin(p, root);
	put(p, OP_SET, 1, 2000, 0);
	top = here(p);
	call(p, get);
	call(p, get);
	call(p, get);
	call(p, set);
	loop(p, 1, top);
	put(p, OP_RETURN, 0, 0, 0);
	return root;
}

/* Four kinds of behaviour, some 0.1 s each, with rates of calls from a few per millisecond to hundreds per microsecond. */
static void phased(struct program *p)
{
	phase(p, calling(p), 8000);
	phase(p, computing(p), 800);
	phase(p, dispatch(p), 5000);
	phase(p, recursion(p), 4000);
}

/* The same, but each thread keeps to one kind. */
static void threaded(struct program *p)
{
	p->spread = 1;
	phase(p, calling(p), 8);
	phase(p, computing(p), 1);
	phase(p, dispatch(p), 5);
	phase(p, recursion(p), 4);
}

/*
 * Figure 1 of Arnold & Grove (CGO 2005): a long sequence of instructions that are no calls, then two short calls. A
 * timer nearly always expires in the sequence, so a profiler that takes the next call sees call_1 and never call_2.
 */
static void adversary(struct program *p)
{
	uint32_t call_1 = leaf(p, "call_1", 1), call_2 = leaf(p, "call_2", 1), root = declare(p, "M"), top;

	begin(p, root);
	put(p, OP_SET, 1, 200, 0);
	top = here(p);
	for (int32_t i = 0; i < 500; i++) {
		put(p, OP_GETFIELD, 0, i % MAX_FIELDS, 0);
		put(p, OP_PUTFIELD, 0, (i * 7 + 1) % MAX_FIELDS, 0);
	}
	call(p, call_1);
	call(p, call_2);
	loop(p, 1, top);
	put(p, OP_RETURN, 0, 0, 0);
	phase(p, root, 1);
}

static const struct {
	const char *name;
	void (*write)(struct program *p);
} programs[] = {
	{"skewed", skewed},	{"phased", phased}, {"recursive", recursive}, {"virtual", virtual},
	{"threaded", threaded}, {"flat", flat},	    {"adversary", adversary},
};

struct program *find_program(const char *name)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (strcmp(programs[i].name, name) != 0)
			continue;
		struct program *p = zeroed(1, sizeof(*p));

		p->name = programs[i].name;
		snprintf(p->file, sizeof(p->file), "%s.vm", p->name);
		begin(p, declare(p, "enter"));
		p->lines++; /* the line of its call */
		programs[i].write(p);
		return p;
	}
	return NULL;
}

void list_programs(FILE *to)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
		fprintf(to, "%s\n", programs[i].name);
}
