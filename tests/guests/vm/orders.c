/* SPDX-License-Identifier: Apache-2.0 */
#include "orders.h"

#include "memory.h"
#include "yield.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int wait_for_agent(void)
{
	for (int i = 0; i < 1000 && !vmprof_connected(); i++)
		usleep(10000);
	return vmprof_connected();
}

void report(const char *order, struct segment s)
{
	printf("%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%016" PRIx64 "\n", order, s.iterations, s.cpu, s.wall,
	       s.checksum);
}

void write_graph(struct crew *crew, FILE *to)
{
	struct graph *g = graph_since(crew);

	print_graph(g, to);
	free_graph(g);
}

/* Runs an iteration in a child, and prints whether the child was armed before and after it. */
static void try_fork(struct crew *crew)
{
	int status;

	fflush(stdout);
	pid_t child = fork();

	if (child < 0)
		die("no child");
	if (child == 0) {
		struct vmprof_slot *slot = vmprof_thread_begin();
		uint32_t before = slot->armed;

		run(crew, 1, 0);
		printf("child\t%u\t%u\t%d\n", before, slot->armed, vmprof_connected());
		if (vmprof_start("child") == 0 && wait_for_agent())
			printf("child connected\n");
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		die("the child ended with status %#x", (unsigned)status);
}

void obey(struct crew *crew)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		char *order = strtok(line, " \n"), *number = strtok(NULL, " \n");

		if (!order)
			continue;
		if (strcmp(order, "run") == 0 && number)
			report(order, run(crew, strtoull(number, NULL, 10), 0));
		else if (strcmp(order, "seconds") == 0 && number)
			report(order, run(crew, 0, strtod(number, NULL)));
		else if (strcmp(order, "graph") == 0)
			write_graph(crew, stdout), puts(order);
		else if (strcmp(order, "yields") == 0)
			printf("%s\t%" PRIu64 "\t%" PRIu64 "\n", order, yields_wanted(), yields_done());
		else if (strcmp(order, "wait") == 0)
			printf("%s\t%d\n", order, wait_for_agent());
		else if (strcmp(order, "recompile") == 0)
			recompile(crew), puts(order);
		else if (strcmp(order, "fork") == 0)
			try_fork(crew), puts(order);
		else if (strcmp(order, "pid") == 0)
			printf("%s\t%d\n", order, (int)getpid());
		else
			die("no order %s", order);
		fflush(stdout);
	}
}
