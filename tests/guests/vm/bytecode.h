/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language of the reference VM. A method has one argument and one result, 64 bits each, which are in the
 * accumulator; and up to MAX_LOCALS local variables, of which local 0 holds the argument. Each thread has one object,
 * with fields. There is no input: what a program calls, and how often, follows from its text alone.
 */
#pragma once

#include <stdint.h>

enum op {
	OP_CONST,    /* acc = a */
	OP_SET,	     /* local = a */
	OP_LOAD,     /* acc = local */
	OP_STORE,    /* local = acc */
	OP_ADD,	     /* acc += local */
	OP_ADDI,     /* acc += a */
	OP_MULI,     /* acc *= a */
	OP_XSHIFT,   /* acc ^= acc >> a */
	OP_GETFIELD, /* acc += field[a] */
	OP_PUTFIELD, /* field[a] = acc */
	OP_PICK,     /* local = table[a][local[b] % TABLE_SIZE] */
	OP_LOOP,     /* if (--local != 0) goto target */
	OP_UNLESS,   /* if ((local & a) != b) goto target */
	OP_BELOW,    /* if (acc < a) goto target */
	OP_CALL,     /* acc = method a(acc) */
	OP_VCALL,    /* acc = selector a of class local (acc) */
	OP_RETURN,
};

#define MAX_LOCALS 14
#define MAX_FIELDS 64
#define MAX_CLASSES 8
#define MAX_SELECTORS 4
#define MAX_TABLES 4
#define MAX_PHASES 8
#define TABLE_SIZE 64

struct instruction {
	enum op op;
	uint32_t local;
	int32_t a, b;
	uint32_t target; /* instruction in the same method */
};

/* Instruction i is on line `line + 1 + i` of the program's source, which `vm -list` prints. */
struct method {
	char name[32];
	uint32_t line;
	struct instruction *code;
	uint32_t length;
};

/* Part of an iteration: so many calls of a root method. */
struct phase {
	uint32_t root;
	uint32_t times;
};

struct program {
	const char *name;
	char file[32];
	int spread; /* thread i runs phase i only, instead of all of them in turn */
	struct method *methods;
	uint32_t method_count;
	uint32_t vtable[MAX_SELECTORS][MAX_CLASSES]; /* methods */
	uint8_t tables[MAX_TABLES][TABLE_SIZE];
	struct phase phases[MAX_PHASES];
	uint32_t phase_count;
	uint32_t current; /* the method that is being written */
	uint32_t lines;	  /* so far */
};

/* Method 0 of every program is how the VM enters compiled code: it calls the roots, from its only line. */
#define ENTER 0
