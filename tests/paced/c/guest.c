// Computes units of work at a pace, and says how long that took by its own clocks. An order is a line: units, the length of one in ns of CPU time, units
// per second, and whether each unit has a thread of its own. The answer is, in ns, the CPU time of units, of their threads and of the process. The
// first order measures how fast the machine is, so that later ones do nothing but units.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;
static long rounds;
static int64_t spent, threads;

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

__attribute__((noinline)) uint64_t paced_unit(long n)
{
	uint64_t h = 1;

	for (long i = 0; i < n; i++)
		h = (h ^ i) * 0x9E3779B97F4A7C15ull + (h >> 13);
	return h;
}

static void unit(void)
{
	int64_t begin = now(CLOCK_THREAD_CPUTIME_ID);

	sink += paced_unit(rounds);
	spent += now(CLOCK_THREAD_CPUTIME_ID) - begin;
}

static void *own_thread(void *unused)
{
	unit();
	threads += now(CLOCK_THREAD_CPUTIME_ID);
	return unused;
}

struct order {
	long units, length, rate, own;
};

static void *pace(void *argument)
{
	struct order *o = argument;
	int64_t next = now(CLOCK_MONOTONIC);
	pthread_t thread;

	for (long i = 0; i < o->units; i++) {
		struct timespec t = {next / 1000000000, next % 1000000000};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
		next += 1000000000 / o->rate;
		if (!o->own)
			unit();
		else if (pthread_create(&thread, 0, own_thread, 0) || pthread_join(thread, 0))
			exit(1);
	}
	if (!o->own)
		threads += now(CLOCK_THREAD_CPUTIME_ID);
	return 0;
}

int main(void)
{
	const long trial = 10000000;
	long each = 0; // ns of the trial
	struct order o;

	while (scanf("%ld %ld %ld %ld", &o.units, &o.length, &o.rate, &o.own) == 4) {
		int64_t begin = now(CLOCK_THREAD_CPUTIME_ID), process;
		pthread_t thread;

		if (!each) {
			sink += paced_unit(trial);
			each = now(CLOCK_THREAD_CPUTIME_ID) - begin;
		}
		rounds = (double)trial * o.length / each + 1;
		spent = threads = 0;
		if (pthread_create(&thread, 0, pace, &o) || pthread_join(thread, 0))
			return 1;
		process = now(CLOCK_PROCESS_CPUTIME_ID);
		printf("%lld %lld %lld\n", (long long)spent, (long long)threads, (long long)process);
		fflush(stdout);
	}
	return 0;
}
