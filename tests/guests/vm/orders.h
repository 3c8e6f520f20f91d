/* SPDX-License-Identifier: Apache-2.0 */
/* The orders that a running VM accepts, and its answers. */
#pragma once

#include "crew.h"

#include <stdio.h>

/* Executes the orders on standard input, one per line, until its end. */
void obey(struct crew *crew);

/* Prints the result of a segment. */
void report(const char *order, struct segment s);

/* Prints the graph since it was last printed. */
void write_graph(struct crew *crew, FILE *to);

/* Returns whether an agent is connected, after at most 10 s. */
int wait_for_agent(void);
