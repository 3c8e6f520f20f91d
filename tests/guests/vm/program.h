/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of programs, and the list of programs. Errors in a program end the process. */
#pragma once

#include "bytecode.h"

#include <stdio.h>

/* Declares a method, so that calls of it can be written before its code. Returns its number. */
uint32_t declare(struct program *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Begins the code of a declared method. What follows until the next begin() is appended to it. */
void begin(struct program *p, uint32_t method);

/* Appends an instruction; returns its number. Unused operands are 0. */
uint32_t put(struct program *p, enum op op, uint32_t local, int32_t a, int32_t b);

/* The number of the next instruction: where a backward jump goes to. */
uint32_t here(struct program *p);

/* Appends OP_LOOP to an instruction before. */
void loop(struct program *p, uint32_t local, uint32_t top);

/* Sets the target of an earlier jump to the next instruction. */
void land(struct program *p, uint32_t jump);

/* Appends OP_CALL. */
void call(struct program *p, uint32_t method);

/* Appends n steps of arithmetic without calls. */
void work(struct program *p, uint32_t n);

/* Declares and writes a method without calls. */
uint32_t leaf(struct program *p, const char *name, uint32_t steps);

/* Adds a phase to an iteration. */
void phase(struct program *p, uint32_t root, uint32_t times);

/* Returns the program of that name, NULL if there is none. It lives as long as the process. */
struct program *find_program(const char *name);

/* Prints the names of all programs. */
void list_programs(FILE *to);

/* Prints the program's source. */
void list(const struct program *p, FILE *to);

/* The line of an instruction. */
uint32_t line_of(const struct method *m, uint32_t instruction);
