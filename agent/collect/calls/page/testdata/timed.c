/*
 * A guest for tests of timings. For each line of its input it takes every kind of timing, and prints how many, as
 * "METHOD VERSION LOOP COUNT", then "lost CAUSE COUNT" for what can have no timing, then "done".
 */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <setjmp.h>
#include <stdio.h>
#include <sys/wait.h>

enum { LEAF = 1, RECURSIVE, JUMPER, JUMPED, CANCELLED, NEST, MERGED, DEEP, STRAY, FLOOD, OTHER, METHODS };

static const char *const names[METHODS] = {"",	   "leaf",   "recursive", "jumper", "jumped", "cancelled",
					   "nest", "merged", "deep",	  "stray",  "flood",  "other"};
static const char code[METHODS][8];
static unsigned chosen[2];

static void spin(unsigned us)
{
	uint64_t until = vmprof_now_() + us * 1000;

	while (vmprof_now_() < until)
		;
}

static void leaf(void)
{
	uint32_t version = vmprof_choose(LEAF, 2);

	VMPROF_TIMER_START(LEAF, version);
	spin(20 + 20 * version);
	VMPROF_TIMER_STOP(LEAF, version);
	__atomic_add_fetch(&chosen[version], 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) static void recursive(int depth)
{
	VMPROF_TIMER_START(RECURSIVE, 0);
	spin(5);
	if (depth > 1)
		recursive(depth - 1);
	VMPROF_TIMER_STOP(RECURSIVE, 0);
}

static jmp_buf out;

__attribute__((noinline)) static void jump(int depth)
{
	volatile char room[64];

	room[0] = (char)depth;
	VMPROF_TIMER_START(JUMPER, 0); /* the same method: only its frame tells it from the outer one */
	VMPROF_TIMER_START(JUMPED, 0);
	if (depth == 0)
		longjmp(out, 1);
	else
		jump(depth - 1);
	room[1] = room[0];
	VMPROF_TIMER_STOP(JUMPED, 0);
	VMPROF_TIMER_STOP(JUMPER, 0);
}

__attribute__((noinline)) static void jumper(void)
{
	VMPROF_TIMER_START(JUMPER, 0);
	spin(50);
	if (!setjmp(out))
		jump(1);
	VMPROF_TIMER_STOP(JUMPER, 0);
}

static void nest(void)
{
	VMPROF_TIMER_START(NEST, 0);
	for (int i = 0; i < 10; i++) {
		for (int j = 0; j < 3; j++) {
			spin(5);
			VMPROF_LOOP(NEST, 2, 1);
		}
		VMPROF_LOOP(NEST, 1, 1);
	}
	VMPROF_TIMER_STOP(NEST, 0);
}

static void merged(void)
{
	VMPROF_TIMER_START(MERGED, 0);
	for (int i = 0; i < 5; i++) {
		spin(40);
		VMPROF_LOOP(MERGED, 1, 4);
		VMPROF_LOOP(MERGED, 1, 0); /* no iteration */
	}
	VMPROF_TIMER_STOP(MERGED, 0);
}

__attribute__((noinline)) static void deep(int depth)
{
	VMPROF_TIMER_START(DEEP, 0);
	if (depth > 1)
		deep(depth - 1);
	VMPROF_TIMER_STOP(DEEP, 0);
}

static void *leaves(void *unused)
{
	for (int i = 0; i < 100; i++)
		leaf();
	return unused;
}

static void all(void)
{
	pthread_t threads[3];
	pid_t child;

	chosen[0] = chosen[1] = 0;
	child = fork();
	if (child == 0) {
		leaves(NULL); /* of the child: its parent's agent must not get them */
		_exit(vmprof_timing());
	}
	waitpid(child, NULL, 0);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, leaves, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 20; i++) {
		recursive(6);
		jumper();
		VMPROF_TIMER_START(CANCELLED, 0);
		VMPROF_TIMER_CANCEL(CANCELLED, 0);
		nest();
		merged();
		VMPROF_TIMER_STOP(STRAY, 0);
		VMPROF_LOOP(STRAY, 1, 1);
		VMPROF_TIMER_START(OTHER, 0);
		VMPROF_TIMER_STOP(OTHER, 0);
	}
	deep(100);
	usleep(100000); /* the ring is empty */
	for (int i = 0; i < 20000; i++) {
		VMPROF_TIMER_START(FLOOD, 7);
		VMPROF_TIMER_STOP(FLOOD, 7);
	}
	printf("1 0 0 %u\n1 1 0 %u\n2 0 0 120\n3 0 0 20\n6 0 0 20\n6 0 1 180\n6 0 2 580\n7 0 0 20\n7 0 1 80\n8 0 0 32\n10 7 0 20000\n"
	       "lost abandoned 100\nlost deep 68\nlost unmatched 108\ntiming %d\ndone\n",
	       chosen[0], chosen[1], vmprof_timing());
	fflush(stdout);
}

int main(void)
{
	char line[8];

	vmprof_start("timed");
	for (uint32_t m = 1; m < METHODS; m++)
		vmprof_method(m, names[m], "timed.c", m, code[m], 8, NULL, 0);
	vmprof_version(LEAF, 0, "plain");
	vmprof_version(LEAF, 1, "slow");
	while (fgets(line, sizeof(line), stdin)) {
		/* once there is an agent that takes timings, or for a minute at most there is one no more */
		for (int i = 0; i < 60000 && vmprof_timing() != (line[0] == '+'); i++)
			usleep(1000);
		all();
	}
	return 0;
}
