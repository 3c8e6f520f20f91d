/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"
#include "programs.h"

/* Fills a table with that many entries of each class, in an order that looks random. */
static void shuffle(uint8_t table[TABLE_SIZE], const uint8_t count[MAX_CLASSES])
{
	uint32_t n = 0, random = 1;

	for (uint8_t class = 0; class < MAX_CLASSES; class++)
		for (int i = 0; i < count[class]; i++)
			table[n++] = class;
	if (n != TABLE_SIZE)
		die("a table of %u receivers", n);
	while (n > 1) {
		random = random * 1664525 + 1013904223;
		uint32_t other = (random >> 16) % n--;
		uint8_t class = table[n];

		table[n] = table[other];
		table[other] = class;
	}
}

/*
 * Three call sites that dispatch on the receiver's class. Of 64 calls each, in the order of the classes: area 24, 12,
 * 8, 8, 4, 4, 2, 2 (nobody has 40%); name 48 and 16; hash 64.
 */
uint32_t dispatch(struct program *p)
{
	static const uint8_t many[MAX_CLASSES] = {24, 12, 8, 8, 4, 4, 2, 2}, two[MAX_CLASSES] = {48, 16},
			     one[MAX_CLASSES] = {64};
	static const char *selectors[] = {"area", "name", "hash"};
	uint32_t scale = leaf(p, "scale", 1), root = declare(p, "dispatch"), top;

	for (uint32_t selector = 0; selector < 3; selector++) {
		for (uint32_t class = 0; class < MAX_CLASSES; class++) {
			uint32_t m = declare(p, "Shape%u.%s", class, selectors[selector]);

			p->vtable[selector][class] = m;
			begin(p, m);
			work(p, 1 + class % 3);
			if (class < 2)
				call(p, scale);
			put(p, OP_RETURN, 0, 0, 0);
		}
	}
	shuffle(p->tables[0], many);
	shuffle(p->tables[1], two);
	shuffle(p->tables[2], one);

	begin(p, root);
	put(p, OP_SET, 1, 16 * TABLE_SIZE, 0);
	top = here(p);
	for (int32_t selector = 0; selector < 3; selector++) {
		put(p, OP_PICK, 2, selector, 1);
		put(p, OP_VCALL, 2, selector, 0);
	}
	loop(p, 1, top);
	put(p, OP_RETURN, 0, 0, 0);
	return root;
}
