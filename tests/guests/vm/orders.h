/* SPDX-License-Identifier: Apache-2.0 */
/* What can be told to a running VM, and how it answers. */
#pragma once

#include "crew.h"

#include <stdio.h>

/* Obeys the orders on standard input, one a line, until its end. */
void obey(struct crew *crew);

/* Prints what a segment did. */
void report(const char *order, struct segment s);

/* Prints the graph since this was done before. */
void write_graph(struct crew *crew, FILE *to);

/* Returns whether an agent is there, after 10 s at most. */
int wait_for_agent(void);
