/* SPDX-License-Identifier: Apache-2.0 */
#include "programs.h"

#define SITES 300
#define DRIVERS 10
#define LEAVES 64

/*
 * 375 methods, some 700 edges. The site of rank r is executed in one of 2^floor(log2 r) rounds, which is Zipf's law
 * in steps; sites are spread over drivers, and over rounds, at random.
 */
uint32_t zipf(struct program *p)
{
	uint32_t leaves[LEAVES], middle[SITES], drivers[DRIVERS], root, top, random = 7;
	uint32_t order[SITES];
	char name[16];

	for (uint32_t i = 0; i < LEAVES; i++) {
		snprintf(name, sizeof(name), "leaf%u", i);
		leaves[i] = leaf(p, name, 1 + i % 3);
	}
	for (uint32_t i = 0; i < SITES; i++) {
		middle[i] = declare(p, "method%u", i);
		begin(p, middle[i]);
		work(p, 1 + i % 4);
		call(p, leaves[i * 7 % LEAVES]);
		if (i % 3 == 0)
			call(p, leaves[i * 11 % LEAVES]);
		put(p, OP_RETURN, 0, 0, 0);
		order[i] = i;
	}
	for (uint32_t i = SITES; i > 1; i--) {
		random = random * 1664525 + 1013904223;
		uint32_t other = (random >> 8) % i, rank = order[i - 1];

		order[i - 1] = order[other];
		order[other] = rank;
	}
	for (uint32_t d = 0; d < DRIVERS; d++) {
		drivers[d] = declare(p, "driver%u", d);
		begin(p, drivers[d]); /* the argument is the number of the round */
		for (uint32_t i = d * (SITES / DRIVERS); i < (d + 1) * (SITES / DRIVERS); i++) {
			uint32_t rank = order[i], period = 1, unless;

			while (period * 2 <= rank + 1)
				period *= 2;
			random = random * 1664525 + 1013904223;
			unless = put(p, OP_UNLESS, 0, (int32_t)period - 1, (int32_t)((random >> 8) & (period - 1)));
			call(p, middle[rank]);
			land(p, unless);
		}
		put(p, OP_RETURN, 0, 0, 0);
	}

	root = declare(p, "main");
	begin(p, root);
	put(p, OP_SET, 1, 256, 0);
	top = here(p);
	for (uint32_t d = 0; d < DRIVERS; d++) {
		put(p, OP_LOAD, 1, 0, 0);
		call(p, drivers[d]);
		put(p, OP_ADD, 0, 0, 0);
		put(p, OP_STORE, 0, 0, 0);
	}
	loop(p, 1, top);
	put(p, OP_RETURN, 0, 0, 0);
	return root;
}
