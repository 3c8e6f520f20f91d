//go:build ignore

/*
 * Runs the functions of kernels.c, of each of which there are two versions, one of them at random each time. With a number as argument it
 * times that many calls of each version itself and prints the medians: "NAME NS_OF_0 NS_OF_1"; else it runs until its input ends.
 */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOTH(type, name, args)                                                                                                 \
	type name##_v0 args;                                                                                                   \
	type name##_v1 args;

BOTH(int, sum, (const int *, int))
BOTH(void, scale, (float *, const float *, int))
BOTH(unsigned, crc, (const unsigned char *, int))
BOTH(int, find, (const unsigned char *, int, int))
BOTH(void, multiply, (double (*)[24], double (*)[24], double (*)[24]))
BOTH(void, sort, (int *, int))

enum { SUM, SCALE, CRC, FIND, MULTIPLY, SORT, KERNELS };

static const char *const names[KERNELS] = {"sum", "scale", "crc", "find", "multiply", "sort"};
static const char code[KERNELS][8];
static int ints[16384], sorted[200];
static float f[8192], g[8192];
static unsigned char bytes[16384];
static double a[24][24], b[24][24], c[24][24];
static volatile unsigned sink;

static void run(int kernel, int version)
{
	switch (kernel) {
	case SUM:
		sink += version ? sum_v1(ints, 16384) : sum_v0(ints, 16384);
		break;
	case SCALE:
		version ? scale_v1(f, g, 8192) : scale_v0(f, g, 8192);
		break;
	case CRC:
		sink += version ? crc_v1(bytes, 512) : crc_v0(bytes, 512);
		break;
	case FIND:
		sink += version ? find_v1(bytes, 16384, 255) : find_v0(bytes, 16384, 255);
		break;
	case MULTIPLY:
		version ? multiply_v1(a, b, c) : multiply_v0(a, b, c);
		break;
	case SORT:
		for (int i = 0; i < 200; i++)
			sorted[i] = ints[i];
		version ? sort_v1(sorted, 200) : sort_v0(sorted, 200);
	}
}

/* What the plug-in calls a function. */
static uint32_t id_of(const char *name)
{
	uint32_t hash = 2166136261u;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 16777619u;
	return hash;
}

static void *serve(void *stop)
{
	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED))
		for (int k = 0; k < KERNELS; k++)
			run(k, vmprof_choose(id_of(names[k]), 2));
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * t.tv_sec + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static int stop;
	pthread_t thread;

	for (int i = 0; i < 16384; i++) {
		ints[i] = (int)((unsigned)i * 2654435761u >> 8) % 1000;
		bytes[i] = (unsigned)ints[i] % 255;
	}
	for (int i = 0; i < 8192; i++)
		g[i] = i;
	for (int i = 0; i < 24 * 24; i++)
		a[i / 24][i % 24] = b[i / 24][i % 24] = i;
	if (argc > 1) {
		int n = atoi(argv[1]);
		for (int k = 0; k < KERNELS; k++) {
			double *ns[2] = {calloc(n, sizeof(double)), calloc(n, sizeof(double))};
			for (int i = 0; i < n; i++)
				for (int v = 0; v < 2; v++) {
					run(k, v); /* so that it is in the caches and known to the branch predictor */
					double begin = now();
					run(k, v);
					ns[v][i] = now() - begin;
				}
			for (int v = 0; v < 2; v++)
				qsort(ns[v], n, sizeof(double), compare);
			printf("%s %.1f %.1f\n", names[k], ns[0][n / 2], ns[1][n / 2]);
		}
		return 0;
	}
	for (int k = 0; k < KERNELS; k++)
		vmprof_method(id_of(names[k]), names[k], "kernels.c", 1, code[k], sizeof(code[k]), NULL, 0);
	vmprof_start("speedups");
	pthread_create(&thread, NULL, serve, &stop);
	while (getchar() != EOF)
		;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	return 0;
}
