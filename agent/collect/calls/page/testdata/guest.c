/*
 * A guest for tests: functions that are methods, calls that are counted exactly. What it takes for a call's site is the
 * address of a byte in its caller's "bytecode", so nothing here depends on how the compiler lays out code.
 *
 *	guest PROGRAM THREADS SECONDS
 *
 * It prints "ready" when the agent has welcomed it, lets each thread work for so many seconds of CPU time, and then
 * prints "edge CALLER SITE CALLEE CALLS" for each edge, and "armed" if any slot of its page is, else "unarmed".
 */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>

#define METHODS 64
#define SITES 8 /* of a method, a byte each */
#define TOP 0	/* calls from here are calls from native code */

static const char code[METHODS][SITES];
static uint64_t edges[METHODS][SITES][METHODS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread uint64_t (*mine)[SITES][METHODS];
static __thread uint64_t sum;

#define CALL(caller, site, callee, ...) (mine[caller][site][callee]++, m_##callee(&code[caller][site] + 1, ##__VA_ARGS__))
#define ENTER(id) vmprof_enter(id, from)
#define METHOD(id) __attribute__((noinline)) static void m_##id(const char *from)

static void work(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		sum = sum * 6364136223846793005u + 1442695040888963407u;
}

METHOD(10) { ENTER(10); work(1); }
METHOD(11) { ENTER(11); work(3); }
METHOD(12) { ENTER(12); CALL(12, 0, 10); work(2); CALL(12, 1, 11); }
METHOD(13) { ENTER(13); work(10); }

/* Figure 1 of the paper: long work without calls, then two short ones. */
METHOD(1) { ENTER(1); work(300); CALL(1, 0, 10); CALL(1, 1, 11); }

/* Shares from 1 to 1/1024. */
METHOD(2)
{
	ENTER(2);
	for (unsigned i = 1; i <= 1024; i++) {
		CALL(2, 0, 10);
		if (i % 2 == 0)
			CALL(2, 1, 11);
		if (i % 8 == 0)
			CALL(2, 2, 12);
		if (i % 64 == 0)
			CALL(2, 3, 13);
		if (i % 1024 == 0)
			CALL(2, 4, 12);
	}
}

/* Phases of some milliseconds: few calls, then many. */
METHOD(3)
{
	ENTER(3);
	for (unsigned i = 0; i < 3000; i++) {
		work(2000);
		CALL(3, 0, 10);
	}
	for (unsigned i = 0; i < 400000; i++) {
		CALL(3, 1, 11);
		CALL(3, 2, 13);
	}
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *program;
static double seconds;
static volatile uint64_t total; /* so that the work is done */

static void *run(void *unused)
{
	static __thread uint64_t table[METHODS][SITES][METHODS];

	mine = table;
	vmprof_thread_begin();
	for (double begin = cpu(); cpu() < begin + seconds;) {
		for (unsigned i = 0; i < 100; i++) {
			if (!strcmp(program, "figure1"))
				CALL(0, 0, 1);
			else if (!strcmp(program, "skewed"))
				CALL(0, 0, 2);
			else if (i == 0)
				CALL(0, 0, 3);
		}
	}
	vmprof_thread_end();
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < sizeof(edges) / sizeof(uint64_t); i++)
		((uint64_t *)edges)[i] += ((uint64_t *)table)[i];
	total += sum;
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(int count, char **args)
{
	pthread_t threads[64];
	char name[32];
	unsigned n, armed = 0;

	if (count < 4 || (n = (unsigned)atoi(args[2])) > 64)
		return 2;
	program = args[1];
	seconds = atof(args[3]);
	for (uint32_t m = 1; m < METHODS; m++) {
		struct vmprof_site sites[SITES];

		for (uint32_t s = 0; s < SITES; s++)
			sites[s] = (struct vmprof_site){s + 1, 100 * m + s};
		snprintf(name, sizeof(name), "m%u", m);
		vmprof_method(m, name, "guest.c", m, code[m], SITES, sites, SITES);
	}
	vmprof_start("testguest");
	while (!vmprof_connected())
		usleep(1000);
	puts("ready");
	fflush(stdout);
	for (unsigned i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, run, NULL);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (unsigned a = 0; a < METHODS; a++)
		for (unsigned s = 0; s < SITES; s++)
			for (unsigned b = 0; b < METHODS; b++)
				if (edges[a][s][b])
					printf("edge %u %u %u %llu\n", a, s, b, (unsigned long long)edges[a][s][b]);
	for (unsigned i = 0; i < VMPROF_SLOTS; i++)
		armed += vmprof_page_->slots[i].armed;
	puts(armed ? "armed" : "unarmed");
	return 0;
}
