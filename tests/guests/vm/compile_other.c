/* SPDX-License-Identifier: Apache-2.0 */
#include "code.h"
#include "memory.h"

#if !defined(__x86_64__)

struct code *compile(const struct program *p, enum prologue prologue, int count)
{
	(void)prologue, (void)count;
	die("%s: there is a compiler for x86-64 only", p->name);
}

#endif
