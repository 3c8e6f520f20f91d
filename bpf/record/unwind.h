/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Unwind tables of native code without frame pointers, as user space makes them from .eh_frame
 * (package elffile/unwind).
 *
 *   unwound        pid -> which code of the process has which table
 *   unwind_tables  number of a table -> the table: an array of blocks
 *
 * Block 0 of a table has the first offset of each of the other blocks. These have rows: an offset
 * from the table's base in the lower half of a word, and a rule in the upper half. Both ascend.
 * What is not used is ~0.
 */
#pragma once

#include <linux/types.h>

#define UNWIND_ROW_BITS 10
#define UNWIND_ROWS (1 << UNWIND_ROW_BITS) /* of a block */
#define UNWIND_BLOCK_BITS 11
/* blocks with rows, of a table: twice as many as a block has rows */
#define UNWIND_BLOCKS (1 << UNWIND_BLOCK_BITS)
#define MAX_UNWIND_TABLES 1024
#define MAX_UNWOUND 2048	    /* processes */
#define UNWIND_MAPPING_BITS 7
#define MAX_UNWIND_MAPPINGS (1 << UNWIND_MAPPING_BITS) /* of a process */
#define NO_UNWIND_TABLE 0xffff /* of code that has none, and gets none */
#define UNWIND_NOWHERE (1ull << 62) /* begin of a mapping that is none */

struct unwind_block {
	/* of the table: another one each time that its place in unwind_tables is used */
	__u64 generation;
	union {
		__u64 rows[UNWIND_ROWS];
		__u32 first[UNWIND_BLOCKS];
	};
};

/* Code of a process: [begin, end). */
struct unwind_mapping {
	__u64 begin, end;
	__u64 base;	  /* address of the table's offset 0 */
	__u16 table;	  /* or NO_UNWIND_TABLE */
	__u16 framed;	  /* all calls in it are made with a frame pointer */
	__u32 generation; /* that the table must have, its lower half */
};

/*
 * A process. The record is right as long as the process has the same memory, and the same amount
 * of it is code: stack is another one after an exec, code_pages after a library was loaded or
 * unloaded. A fork has both from its parent.
 */
struct unwound_process {
	__u64 stack;	  /* mm_struct.start_stack */
	__u64 code_pages; /* mm_struct.exec_vm */
	__u32 serial;	  /* of this record among all of them, never 0 */
	__u32 pad;
	struct unwind_mapping mappings[MAX_UNWIND_MAPPINGS]; /* in the order of addresses */
};

/* Addresses whose tables a walk lacked. */
struct unwind_want {
	__u64 sampled;	/* the pc that the walk began at */
	__u64 untabled; /* the first pc for which there was no table */
};

/* Bits of a rule: see Rule in elffile/unwind. */
enum rule_kind {
	RULE_NONE,
	RULE_RSP,
	RULE_RBP,
	RULE_DEREF_RSP,
	RULE_DEREF_RBP,
	RULE_PLT,
	RULE_SIGNAL,
	RULE_ROOT,
	RULE_UNSUPPORTED,
};

enum rule_saved {
	RULE_RBP_SAME = 0,
	RULE_RBP_AT_RBP = 0xffe,
	RULE_RBP_LOST = 0xfff,
};
