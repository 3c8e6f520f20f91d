/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include "memory.h"

#include <stdarg.h>
#include <string.h>

uint32_t declare(struct program *p, const char *format, ...)
{
	struct method *m;
	va_list args;

	p->methods = resize(p->methods, (p->method_count + 1) * sizeof(*p->methods));
	m = &p->methods[p->method_count];
	memset(m, 0, sizeof(*m));
	va_start(args, format);
	vsnprintf(m->name, sizeof(m->name), format, args);
	va_end(args);
	return p->method_count++;
}

static struct method *current(struct program *p) { return &p->methods[p->current]; }

void begin(struct program *p, uint32_t method)
{
	p->current = method;
	p->methods[method].line = ++p->lines;
}

uint32_t put(struct program *p, enum op op, uint32_t local, int32_t a, int32_t b)
{
	struct method *m = current(p);

	m->code = resize(m->code, (m->length + 1) * sizeof(*m->code));
	m->code[m->length] = (struct instruction){.op = op, .local = local, .a = a, .b = b};
	p->lines++;
	return m->length++;
}

uint32_t here(struct program *p) { return current(p)->length; }

void loop(struct program *p, uint32_t local, uint32_t top)
{
	uint32_t jump = put(p, OP_LOOP, local, 0, 0);

	current(p)->code[jump].target = top;
}

void land(struct program *p, uint32_t jump) { current(p)->code[jump].target = here(p); }

void call(struct program *p, uint32_t method) { put(p, OP_CALL, 0, (int32_t)method, 0); }

void work(struct program *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		put(p, OP_MULI, 0, 0x2545f491 + 2 * (int32_t)i, 0);
		put(p, OP_XSHIFT, 0, 29, 0);
	}
}

uint32_t leaf(struct program *p, const char *name, uint32_t steps)
{
	uint32_t m = declare(p, "%s", name);

	begin(p, m);
	work(p, steps);
	put(p, OP_RETURN, 0, 0, 0);
	return m;
}

void phase(struct program *p, uint32_t root, uint32_t times)
{
	if (p->phase_count == MAX_PHASES)
		die("%s has more than %d phases", p->name, MAX_PHASES);
	p->phases[p->phase_count++] = (struct phase){root, times};
}

uint32_t line_of(const struct method *m, uint32_t instruction) { return m->line + 1 + instruction; }

void list(const struct program *p, FILE *to)
{
	static const char *names[] = {"const",	  "set",      "load", "store", "add",	 "addi",  "muli", "xshift",
				      "getfield", "putfield", "pick", "loop",  "unless", "below", "call", "vcall",
				      "return"};

	for (uint32_t m = 0; m < p->method_count; m++) {
		const struct method *method = &p->methods[m];

		fprintf(to, "%5u  %s:\n", method->line, method->name);
		for (uint32_t i = 0; i < method->length; i++) {
			const struct instruction *in = &method->code[i];

			fprintf(to, "%5u      %-8s", line_of(method, i), names[in->op]);
			if (in->op == OP_CALL)
				fprintf(to, " %s\n", p->methods[in->a].name);
			else
				fprintf(to, " local=%u a=%d b=%d -> %u\n", in->local, in->a, in->b,
					line_of(method, in->target));
		}
	}
}
