/* Processes that run in turn: each of COUNT works for SLICE microseconds, and sleeps while the others do. Together they use a tenth of a
 * CPU, however many they are, so that a busy machine does not delay them. Prints their pids and "ready"; they end with the standard input. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) static unsigned long work(unsigned long x)
{
	for (int i = 0; i < 10000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

static void take_turns(long begin, long slice, long period)
{
	volatile unsigned long x = 88172645463325252UL;

	for (long next = begin;; next += period) {
		struct timespec t = { next / 1000000000, next % 1000000000 };

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
			;
		for (long end = now(CLOCK_PROCESS_CPUTIME_ID) + slice; now(CLOCK_PROCESS_CPUTIME_ID) < end;)
			x = work(x);
		if (now(CLOCK_MONOTONIC) > next + period)
			next = now(CLOCK_MONOTONIC); /* the machine is busy: turns that were missed are not made up for */
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int count = atoi(argv[1]);
	long slice = 1000L * atoi(argv[2]), *begin;
	pid_t parent = getpid();
	int start[2]; /* is closed when all have been started */

	begin = mmap(NULL, sizeof(*begin), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (begin == MAP_FAILED || pipe(start))
		return 1;
	setpgid(0, 0);
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (!pid) {
			char byte;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(start[1]);
			if (getppid() != parent || read(start[0], &byte, 1))
				_exit(1); /* the parent has ended before */
			take_turns(*begin + 10 * i * slice, slice, 10 * count * slice);
		}
		printf("%d\n", pid);
	}
	*begin = now(CLOCK_MONOTONIC);
	close(start[1]);
	puts("ready");
	fflush(stdout);
	getchar();
	signal(SIGTERM, SIG_IGN);
	return kill(0, SIGTERM); /* the whole process group */
}
