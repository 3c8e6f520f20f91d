/* SPDX-License-Identifier: Apache-2.0 */
/* A small VM whose calls are known exactly, to test profilers; and an example of a VM that uses vmprof.h. */
#include "crew.h"
#include "memory.h"
#include "orders.h"
#include "program.h"
#include "yield.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: vm PROGRAM [-iterations N | -seconds N] [-threads N] [CHECK] [-exact] [-graph FILE] [-wait]\n"
	"       vm PROGRAM [-threads N] [CHECK] [-exact] -    (obeys orders on standard input)\n"
	"       vm -list [PROGRAM]\n"
	"\n"
	"  -iterations N  by each thread; 100 if nothing is said\n"
	"  -seconds N     as many iterations as fit\n"
	"  -threads N     1 if nothing is said; of `threaded` 4\n"
	"  CHECK          how methods begin, if not with a check of their own for the agent:\n"
	"    -nocheck     without one\n"
	"    -nop         with a NOP that is as long\n"
	"    -yield N     with a yieldpoint, which serves the agent too; a timer wants each thread to yield N times a second\n"
	"  -exact         counts every call while running, instead of multiplying the calls of one iteration\n"
	"  -graph FILE    writes the exact call graph there, - for standard output\n"
	"  -wait          waits for an agent first, 10 s at most\n"
	"\n"
	"orders: run N, seconds N, graph, yields, wait, recompile, fork, pid. Answers end with a line that begins with the order.\n"
	"run and seconds answer: order, iterations of all threads, CPU ns, wall ns, checksum of all so far.\n";

struct options {
	const char *program, *graph;
	uint64_t iterations;
	double seconds;
	uint32_t threads, yields;
	enum prologue prologue;
	int exact, wait, orders;
};

static void complain(void)
{
	fputs(usage, stderr);
	exit(2);
}

static const char *value(char ***arg)
{
	if (!*++*arg)
		complain();
	return **arg;
}

static struct options parse(char **arg)
{
	struct options o = {0};

	for (; *arg; arg++) {
		if (strcmp(*arg, "-iterations") == 0)
			o.iterations = strtoull(value(&arg), NULL, 10);
		else if (strcmp(*arg, "-seconds") == 0)
			o.seconds = strtod(value(&arg), NULL);
		else if (strcmp(*arg, "-threads") == 0)
			o.threads = (uint32_t)strtoul(value(&arg), NULL, 10);
		else if (strcmp(*arg, "-graph") == 0)
			o.graph = value(&arg);
		else if (strcmp(*arg, "-nocheck") == 0)
			o.prologue = BARE;
		else if (strcmp(*arg, "-nop") == 0)
			o.prologue = PADDED;
		else if (strcmp(*arg, "-yield") == 0)
			o.prologue = YIELDING, o.yields = (uint32_t)strtoul(value(&arg), NULL, 10);
		else if (strcmp(*arg, "-exact") == 0)
			o.exact = 1;
		else if (strcmp(*arg, "-wait") == 0)
			o.wait = 1;
		else if (strcmp(*arg, "-") == 0)
			o.orders = 1;
		else if (**arg != '-' && !o.program)
			o.program = *arg;
		else
			complain();
	}
	return o;
}

static int list_of(const char *name)
{
	const struct program *p = name ? find_program(name) : NULL;

	if (name && !p)
		die("no program %s", name);
	if (p)
		list(p, stdout);
	else
		list_programs(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	struct crew crew;
	struct options o;
	struct program *p;
	struct code *code;

	if (argc > 1 && strcmp(argv[1], "-list") == 0)
		return list_of(argv[2]);
	o = parse(argv + 1);
	p = o.program ? find_program(o.program) : NULL;
	if (!p)
		die("no program %s; vm -list lists them", o.program ? o.program : "was named");

	vmprof_thread_begin();
	if (vmprof_start("vm") != 0)
		die("cannot look for an agent");
	code = compile(p, o.prologue, o.exact);
	if (o.prologue == CHECKED || o.prologue == YIELDING)
		announce(code);
	hire(&crew, code, o.exact ? code : compile(p, BARE, 1), o.threads ? o.threads : p->spread ? p->phase_count : 1);
	if (o.yields > 0)
		yield_often(o.yields);
	if (o.wait && !wait_for_agent())
		die("no agent came");

	if (o.orders) {
		obey(&crew);
	} else {
		report("run", run(&crew, o.seconds > 0 ? 0 : o.iterations ? o.iterations : 100, o.seconds));
	}
	if (o.graph) {
		FILE *to = strcmp(o.graph, "-") == 0 ? stdout : fopen(o.graph, "w");

		if (!to)
			die("cannot write %s", o.graph);
		write_graph(&crew, to);
		fclose(to);
	}
	vmprof_stop();
	return 0;
}
