//go:build ignore

/*
 * The run time of the tests of contrib/llvm: counts what timing points report, and writes it to the file that VMPROF_COUNTS
 * names when the program ends. Also the functions that the tests' programs call and the compiler must know nothing of.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE = 1 << 16 };

static struct count {
	uint32_t method, loop;
	uint64_t iterations, calls;
} counts[TABLE];

static uint64_t started, stopped;

static struct count *count_of(uint32_t method, uint32_t loop)
{
	for (uint32_t i = (method * 31 + loop) % TABLE;; i = (i + 1) % TABLE) {
		struct count *c = &counts[i];
		if (c->calls == 0) {
			c->method = method;
			c->loop = loop;
		}
		if (c->method == method && c->loop == loop)
			return c;
	}
}

void vmprof_loop(uint32_t method, uint32_t loop, uint64_t n)
{
	struct count *c = count_of(method, loop);
	c->iterations += n;
	c->calls++;
}

void vmprof_timer_start(uint32_t method, uint32_t version)
{
	started++;
}

void vmprof_timer_stop(uint32_t method, uint32_t version)
{
	stopped++;
}

/* The variables of markers that stay in the program. The linker defines the section's bounds. */
struct marker {
	uint32_t method, loop;
	uint64_t *variable;
};

extern struct marker markers_begin[] __asm__("__start_vmprof_counts") __attribute__((weak));
extern struct marker markers_end[] __asm__("__stop_vmprof_counts") __attribute__((weak));

/* Written by the program itself if it was compiled with -DTRUTH: iterations by the line of their loop. */
uint64_t truth[TABLE];

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("VMPROF_COUNTS");
	FILE *out = path ? fopen(path, "w") : NULL;
	if (out == NULL)
		return;
	for (struct marker *m = markers_begin; m < markers_end; m++)
		if (*m->variable != 0)
			vmprof_loop(m->method, m->loop, *m->variable);
	for (int i = 0; i < TABLE; i++)
		if (counts[i].calls != 0)
			fprintf(out, "loop %08x %u %llu %llu\n", counts[i].method, counts[i].loop,
				(unsigned long long)counts[i].iterations, (unsigned long long)counts[i].calls);
	for (int i = 0; i < TABLE; i++)
		if (truth[i] != 0)
			fprintf(out, "truth %d %llu\n", i, (unsigned long long)truth[i]);
	fprintf(out, "timers %llu %llu\n", (unsigned long long)started, (unsigned long long)stopped);
	fclose(out);
}

unsigned opaque(unsigned x)
{
	return x * 2654435761u >> 7;
}
