/*
 * A guest for audits: methods with two versions each, one of which is chosen at random for each invocation. The work of
 * the slowerX is a chain of multiplications; version 1 has X % more. The guest runs until its input ends, then prints
 * "METHOD VERSION CALLS STEPS" for each version.
 */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>

enum { SLOWER0 = 1, SLOWER1, SLOWER2, SLOWER5, SLOWER10, HOISTED, UNROLLED, SHORT, SINGLE, METHODS };

static const char *const names[METHODS] = {"",	       "slower0", "slower1",  "slower2", "slower5",
					   "slower10", "hoisted", "unrolled", "short",	 "single"};
static const char code[METHODS][8];
static const uint32_t percent[METHODS] = {[SLOWER1] = 1, [SLOWER2] = 2, [SLOWER5] = 5, [SLOWER10] = 10};
static uint64_t calls[METHODS][2], steps[METHODS][2];
static volatile uint64_t total; /* so that the compiler keeps the work */

#define STEPS 4000
#define ROUNDS 32 /* of a loop */

/* Each step depends on the one before: the time is proportional to n. */
__attribute__((noinline)) static uint64_t work(uint64_t x, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

__attribute__((noinline)) static void slower(uint32_t method)
{
	uint32_t version = vmprof_choose(method, 2);
	unsigned n = version ? STEPS * (100 + percent[method]) / 100 : STEPS;

	VMPROF_TIMER_START(method, version);
	total += work(total, n);
	VMPROF_TIMER_STOP(method, version);
	calls[method][version]++;
	steps[method][version] += n;
}

/* Version 0 computes in each iteration a value that version 1 computes once. */
__attribute__((noinline)) static void hoisted(void)
{
	uint32_t version = vmprof_choose(HOISTED, 2);
	uint64_t once = version ? work(7, 100) : 0, sum = 0;

	VMPROF_TIMER_START(HOISTED, version);
	for (unsigned i = 0; i < ROUNDS; i++) {
		sum += work(i, 400) + (version ? once : work(7, 100));
		VMPROF_LOOP(HOISTED, 1, 1);
	}
	total += sum;
	VMPROF_TIMER_STOP(HOISTED, version);
	calls[HOISTED][version]++;
	steps[HOISTED][version] += ROUNDS * (version ? 400 : 500);
}

/* Version 1 does four iterations at a time, which do not depend on each other, and merges their points. */
__attribute__((noinline)) static void unrolled(void)
{
	uint32_t version = vmprof_choose(UNROLLED, 2);
	uint64_t sum = 0;

	VMPROF_TIMER_START(UNROLLED, version);
	for (unsigned i = 0; i < ROUNDS; i += version ? 4 : 1) {
		if (version == 0) {
			sum += work(i, 400);
		} else {
			uint64_t a = i, b = i + 1, c = i + 2, d = i + 3;

			for (unsigned k = 0; k < 400; k++) {
				a = a * 6364136223846793005u + 1442695040888963407u;
				b = b * 6364136223846793005u + 1442695040888963407u;
				c = c * 6364136223846793005u + 1442695040888963407u;
				d = d * 6364136223846793005u + 1442695040888963407u;
				__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
			}
			sum += a + b + c + d;
		}
		VMPROF_LOOP(UNROLLED, 1, version ? 4 : 1);
	}
	total += sum;
	VMPROF_TIMER_STOP(UNROLLED, version);
	calls[UNROLLED][version]++;
	steps[UNROLLED][version] += ROUNDS * 400;
}

/* Shorter than the cost of its timing. */
__attribute__((noinline)) static void shorter(void)
{
	uint32_t version = vmprof_choose(SHORT, 2);

	VMPROF_TIMER_START(SHORT, version);
	total += version;
	VMPROF_TIMER_STOP(SHORT, version);
}

static void *run(void *stop)
{
	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		for (uint32_t m = SLOWER0; m <= SLOWER10; m++)
			slower(m);
		hoisted();
		unrolled();
		shorter();
		VMPROF_TIMER_START(SINGLE, 0);
		total += work(total, STEPS);
		VMPROF_TIMER_STOP(SINGLE, 0);
	}
	return NULL;
}

int main(void)
{
	static int stop;
	pthread_t thread;

	for (uint32_t m = 1; m < METHODS; m++)
		vmprof_method(m, names[m], "audited.c", m, code[m], sizeof(code[m]), NULL, 0);
	vmprof_version(HOISTED, 0, "plain");
	vmprof_version(HOISTED, 1, "hoisted");
	vmprof_version(UNROLLED, 0, "plain");
	vmprof_version(UNROLLED, 1, "unrolled");
	vmprof_start("audited");
	pthread_create(&thread, NULL, run, &stop);
	while (getchar() != EOF)
		;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	for (uint32_t m = 1; m < METHODS; m++)
		for (int v = 0; v < 2; v++)
			if (calls[m][v])
				printf("%s %d %llu %llu\n", names[m], v, (unsigned long long)calls[m][v],
				       (unsigned long long)steps[m][v]);
	return 0;
}
