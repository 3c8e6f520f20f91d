/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void die(const char *format, ...)
{
	va_list args;

	fputs("vm: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void *resize(void *p, size_t size)
{
	p = realloc(p, size);
	if (!p)
		die("no memory for %zu bytes", size);
	return p;
}

void *zeroed(size_t count, size_t size)
{
	void *p = calloc(count, size);

	if (!p)
		die("no memory for %zu times %zu bytes", count, size);
	return p;
}
