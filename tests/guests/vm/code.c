/* SPDX-License-Identifier: Apache-2.0 */
#include "code.h"

#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

uint64_t enter(const struct code *c, uint32_t method, uint64_t argument, struct context *context)
{
	union { /* a function, where C knows bytes only */
		uint8_t *address;
		uint64_t (*function)(const uint8_t *, uint64_t, struct context *);
	} entry = {c->methods[ENTER].begin};

	return entry.function(c->methods[method].begin, argument, context);
}

void announce(const struct code *c)
{
	for (uint32_t m = 0; m < c->program->method_count; m++) {
		const struct method *method = &c->program->methods[m];
		const struct compiled *code = &c->methods[m];

		if (vmprof_method(m + 1, method->name, c->program->file, method->line, code->begin, code->size, code->sites,
				  code->site_count) != 0)
			die("no memory to register %s", method->name);
	}
}

void discard(struct code *c)
{
	for (uint32_t m = 0; m < c->program->method_count; m++) {
		vmprof_forget(m + 1, c->methods[m].begin);
		free(c->methods[m].sites);
	}
	munmap(c->memory, c->size);
	for (int i = 0; i < MAX_SELECTORS; i++)
		free(c->vtable[i]);
	free(c->methods);
	free(c);
}
