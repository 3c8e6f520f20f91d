/*
 * Pairs of threads that hand a byte to each other through pipes, each pair on a CPU of its own: every hand-over is a switch. An order is a
 * line: how many hand-overs each pair makes, and how many rounds of a loop a thread works before each. The answer is a line, done.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_CPUS 64

struct player {
	pthread_t thread;
	int cpu, in, out;
	long times, work;
};

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void *play(void *argument)
{
	struct player *p = argument;
	cpu_set_t own;
	char byte;

	CPU_ZERO(&own);
	CPU_SET(p->cpu, &own);
	check(!pthread_setaffinity_np(pthread_self(), sizeof(own), &own), "stay on a CPU");
	for (long i = 0; i < p->times; i++) {
		check(read(p->in, &byte, 1) == 1, "read");
		for (volatile long n = p->work; n > 0; n--)
			;
		check(write(p->out, &byte, 1) == 1, "write");
	}
	return NULL;
}

int main(void)
{
	static struct player players[MAX_CPUS][2];
	long times, work;
	cpu_set_t usable;
	int pairs = 0;

	check(!sched_getaffinity(0, sizeof(usable), &usable), "find CPUs");
	for (int cpu = 0; cpu < CPU_SETSIZE && pairs < MAX_CPUS; cpu++) {
		struct player *p = players[pairs];
		int there[2], back[2];

		if (!CPU_ISSET(cpu, &usable))
			continue;
		check(!pipe(there) && !pipe(back), "make pipes");
		p[0] = (struct player){.cpu = cpu, .in = there[0], .out = back[1]};
		p[1] = (struct player){.cpu = cpu, .in = back[0], .out = there[1]};
		check(write(there[1], "", 1) == 1, "begin"); /* at the end of each order there is one byte here again */
		pairs++;
	}
	printf("ready %d\n", pairs);
	fflush(stdout);
	while (scanf("%ld %ld", &times, &work) == 2) {
		for (int i = 0; i < pairs; i++) {
			for (int side = 0; side < 2; side++) {
				struct player *p = &players[i][side];

				p->times = times;
				p->work = work;
				check(!pthread_create(&p->thread, NULL, play, p), "make a thread");
			}
		}
		for (int i = 0; i < pairs; i++)
			for (int side = 0; side < 2; side++)
				check(!pthread_join(players[i][side].thread, NULL), "wait for a thread");
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
