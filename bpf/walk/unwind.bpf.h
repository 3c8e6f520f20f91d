/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Native frames by unwind tables, on x86-64. Programs that take contexts of other modes do
 * without.
 *
 * A walk asks for the tables of its process when it comes to native code, once. What a table says
 * of an address is kept per CPU, as stacks have the same return addresses again and again: so most
 * frames cost no search.
 *
 * Code without a table is walked by frame pointer. If that leads nowhere, or another frame of the
 * walk had a table, the walk leaves a request in unwind_wanted, one for each process, which user
 * space takes out when it has answered.
 */
#pragma once

#include "record/unwind.h"
#include "walk/stackcopy.bpf.h"

#ifndef CONTEXTS
/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_UNWOUND);
	__type(key, __u32);
	__type(value, struct unwound_process);
} unwound SEC(".maps");

/* Without it, an object that looks up no table has no definition of the struct. */
struct unwind_block *export_unwind_block __attribute__((unused));

/* Sizes, not types: Linux 6.1 takes tables without types only if this has none either. */
struct unwind_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP); /* tables differ in size */
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct unwind_block));
};

/* key: unwind_mapping.table */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_UNWIND_TABLES);
	__type(key, __u32);
	__array(values, struct unwind_table);
} unwind_tables SEC(".maps");

#define MAX_UNWIND_WANTED 1024

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_UNWIND_WANTED);
	__type(key, __u32);
	__type(value, struct unwind_want);
} unwind_wanted SEC(".maps");
#endif

/* What unwind_frame returns besides an enum walk_end. */
enum unwind_results {
	UNWOUND = END_COUNT, /* the caller is in scratch.caller */
	NO_TABLE,	     /* the frame pointer has to lead on */
};

#if !defined(CONTEXTS) && defined(__TARGET_ARCH_x86)
#define UNWINDS

/* Words below a CFA that are read from the copy of the stack: that is how much one has at least. */
#define NATIVE_REACH 16

/*
 * 1 if a >= b, else 0. Both are less than 1 << 63. It is no branch, as the verifier would follow
 * each side at every step of a search; nor is it a mask, where Linux 6.18 does the same.
 */
static __always_inline __u64 reaches(__u64 a, __u64 b)
{
	__u64 distance = a - b;

	asm volatile("" : "+r"(distance)); /* or the compiler makes a branch of it */
	return distance >> 63 ^ 1;
}

/* at & mask, where the compiler knows no better: Linux 6.1 loses the bounds of sums and of |. */
static __always_inline __u64 within(__u64 at, __u64 mask)
{
	asm volatile("" : "+r"(at));
	return at & mask;
}

/* Index of the last mapping that begins at pc or before, or 0. */
static __always_inline __u32 mapping_before(const struct unwound_process *p, __u64 pc)
{
	__u64 at = 0;

#pragma unroll
	for (int bit = UNWIND_MAPPING_BITS - 1; bit >= 0; bit--)
		at += reaches(pc, p->mappings[within(at + (1 << bit), MAX_UNWIND_MAPPINGS - 1)].begin) << bit;
	return within(at, MAX_UNWIND_MAPPINGS - 1);
}

static __always_inline __u32 block_before(const struct unwind_block *b, __u64 offset)
{
	__u64 at = 0;

#pragma unroll
	for (int bit = UNWIND_BLOCK_BITS - 1; bit >= 0; bit--)
		at += reaches(offset, b->first[within(at + (1 << bit), UNWIND_BLOCKS - 1)]) << bit;
	return within(at, UNWIND_BLOCKS - 1);
}

static __always_inline __u32 row_before(const struct unwind_block *b, __u64 offset)
{
	__u64 at = 0;

#pragma unroll
	for (int bit = UNWIND_ROW_BITS - 1; bit >= 0; bit--)
		at += reaches(offset, (__u32)b->rows[within(at + (1 << bit), UNWIND_ROWS - 1)]) << bit;
	return within(at, UNWIND_ROWS - 1);
}

/* Reads what tells the walked memory apart: see struct unwound_process. */
static __always_inline void read_memory(struct scratch *s, __u64 *stack, __u64 *pages)
{
#ifdef ALONE
	struct task_struct *task = (void *)s->start.task;
	struct mm_struct *mm = 0;

	*stack = *pages = 0;
	bpf_probe_read_kernel(&mm, sizeof(mm), &task->mm);
	bpf_probe_read_kernel(stack, sizeof(*stack), &mm->start_stack);
	bpf_probe_read_kernel(pages, sizeof(*pages), &mm->exec_vm);
#else
	struct mm_struct *mm = ((struct task_struct *)bpf_get_current_task_btf())->mm;

	*stack = mm->start_stack;
	*pages = mm->exec_vm;
#endif
}

/* Begins the native part of a walk: whether the process has tables. */
__noinline int find_unwound(void)
{
	struct scratch *s = this_scratch();
	const struct unwound_process *p;
	__u64 stack, pages;
	__u32 pid;

	if (!s)
		return 0;
	s->unwind.walk = s->start.walk;
	s->unwind.serial = s->unwind.wanted = s->unwind.led = s->unwind.frames = s->unwind.misses = 0;
	s->unwind.untabled = s->unwind.interrupted = 0;
	read_memory(s, &stack, &pages);
	/* frames of a process's first thread are below where its stack began */
	s->unwind.stack_to = s->start.stack_base ? s->start.stack_base : stack;
	pid = s->sample.header.pid;
	p = bpf_map_lookup_elem(&unwound, &pid);
	if (!p)
		return 0;
	if (stack != p->stack || pages != p->code_pages) {
		count(UNWIND_STALE, 1);
		s->unwind.wanted = 1;
		return 0;
	}
	s->unwind.serial = p->serial;
	if (s->unwind_mappings.serial != p->serial) {
		s->unwind_mappings.serial = p->serial;
		s->unwind_mappings.last.end = s->unwind_mappings.framed.end = 0;
	}
	return 0;
}

static __always_inline bool is_in(const struct unwind_mapping *m, __u64 pc)
{
	return pc >= m->begin && pc < m->end;
}

/*
 * Looks up the rule of an address, into scratch.unwind.rule: none where a call is made with a frame
 * pointer. Returns 0 if the process has no table for it, and may get one.
 */
__noinline int find_rule(__u64 pc, __u64 call)
{
	struct scratch *s = this_scratch();
	const struct unwound_process *p;
	struct unwind_mapping *m;
	const struct unwind_block *b;
	__u32 pid, index = 0;
	__u64 offset, row;
	void *table;

	if (!s)
		return 0;
	s->unwind.rule = 0;
	m = &s->unwind_mappings.last;
	pid = s->sample.header.pid;
	if (!is_in(m, pc)) {
		p = bpf_map_lookup_elem(&unwound, &pid);
		if (!p)
			return 0;
		*m = p->mappings[mapping_before(p, pc)];
		if (!is_in(m, pc))
			return 0;
		if (m->framed)
			s->unwind_mappings.framed = *m;
	}
	if (m->table == NO_UNWIND_TABLE || (call && m->framed))
		return 1;
	s->unwind.misses++;
	offset = pc - m->base;
	index = m->table;
	table = bpf_map_lookup_elem(&unwind_tables, &index);
	index = 0;
	b = table ? bpf_map_lookup_elem(table, &index) : 0;
	if (!b || (__u32)b->generation != m->generation) {
		count(UNWIND_GONE, 1);
		return 0;
	}
	if (offset >= ~0u)
		return 1;
	index = block_before(b, offset) + 1;
	b = bpf_map_lookup_elem(table, &index);
	if (!b)
		return 1;
	row = b->rows[row_before(b, offset)];
	if ((__u32)row <= offset)
		s->unwind.rule = row >> 32;
	return 1;
}

/*
 * The caller's return address and rbp, of a frame with that CFA, into scratch.caller. Returns 0 if
 * they could be read.
 */
static __always_inline int read_frame(struct scratch *s, __u64 cfa, __u64 bp, __u32 where)
{
	__u32 words = where < 2 ? 2 : where; /* that are needed below the CFA */
	__u64 at = where == RULE_RBP_AT_RBP ? bp : cfa - 8 * where;

	s->caller.sp = cfa;
	s->caller.bp = where == RULE_RBP_LOST ? 1 : bp; /* 1 leads nowhere */
	if (words <= NATIVE_REACH && !stackcopy_cover(s, s->unwind.stack_to, cfa - 8 * words, 8 * words)) {
		s->caller.pc = stackcopy_word(s, cfa - 8);
		if (where)
			s->caller.bp = stackcopy_word(s, at);
		return 0;
	}
	if (bpf_probe_read_user(&s->caller.pc, 8, (void *)(cfa - 8)))
		return END_READ;
	if (where && where != RULE_RBP_LOST && bpf_probe_read_user(&s->caller.bp, 8, (void *)at))
		return END_READ;
	return 0;
}

/*
 * Where the kernel leaves the interrupted registers, from rsp of the function that returns from a
 * signal handler.
 */
#define SIGNAL_RBP 120
#define SIGNAL_RSP 160
#define SIGNAL_RIP 168

/* The interrupted function, into scratch.caller. It may be on another stack. */
static __always_inline int read_interrupted(struct scratch *s, __u64 sp)
{
	if (bpf_probe_read_user(&s->caller.bp, 8, (void *)(sp + SIGNAL_RBP)) ||
	    bpf_probe_read_user(&s->caller.sp, 8, (void *)(sp + SIGNAL_RSP)) ||
	    bpf_probe_read_user(&s->caller.pc, 8, (void *)(sp + SIGNAL_RIP)))
		return END_READ;
	s->unwind.interrupted = s->caller.pc;
	return 0;
}

/* The caller by a rule, into scratch.caller. Returns 0, or an enum walk_end. */
__noinline int apply_rule(__u32 rule, __u64 pc, __u64 sp, __u64 bp)
{
	struct scratch *s = this_scratch();
	__u32 kind = rule >> 28, operand = rule & 0xffff;
	__u64 cfa = 0, from = kind == RULE_RBP || kind == RULE_DEREF_RBP ? bp : sp;

	if (!s)
		return END_READ;
	switch (kind) {
	case RULE_RSP:
	case RULE_RBP:
		cfa = from + 8 * operand;
		break;
	case RULE_DEREF_RSP:
	case RULE_DEREF_RBP:
		if (bpf_probe_read_user(&cfa, sizeof(cfa), (void *)(from + 8 * ((__s64)((__u64)operand << 48) >> 52))))
			return END_READ;
		cfa += 8 * (operand & 15);
		break;
	case RULE_PLT:
		cfa = sp + ((pc & 15) >= operand ? 16 : 8);
		break;
	case RULE_SIGNAL:
		return read_interrupted(s, sp);
	case RULE_ROOT:
		return END_ROOT;
	default:
		return END_RULE;
	}
	if (cfa <= sp || (cfa & 7))
		return END_DIRECTION;
	if (s->start.native_to && cfa > s->start.native_to)
		return END_DIRECTION;
	return read_frame(s, cfa, bp, rule >> 16 & 0xfff);
}

/*
 * The rule of a place, 0 if it has none. call says that it is in a call instruction. missing is set
 * if there may be a table for it later.
 */
static __always_inline __u32 rule_of(struct scratch *s, __u64 pc, bool call, bool *missing)
{
	struct known_rule *k = &s->rules[(pc ^ pc >> 10) & (RULES - 1)];

	*missing = false;
	if (call && is_in(&s->unwind_mappings.framed, pc))
		return 0;
	if (k->pc == pc && k->serial == s->unwind.serial)
		return k->rule;
	if (!find_rule(pc, call)) {
		*missing = true;
		return 0;
	}
	if (call && is_in(&s->unwind_mappings.framed, pc))
		return 0; /* the next one is found above, and k is another's */
	k->pc = pc;
	k->serial = s->unwind.serial;
	k->rule = s->unwind.rule;
	return k->rule;
}

/* The caller by table. Returns UNWOUND, NO_TABLE, or an enum walk_end. */
static __always_inline int unwind_frame(struct scratch *s, __u64 pc, __u64 sp, __u64 bp, __u64 leaf)
{
	bool missing = true, call;
	__u32 rule = 0;
	int why;

	if (s->unwind.walk != s->start.walk)
		find_unwound();
	call = !leaf && pc != s->unwind.interrupted;
	pc -= call; /* into the call, which may be the last instruction of its function */
	if (!leaf)
		s->unwind.interrupted = 0;
	if (s->unwind.serial)
		rule = rule_of(s, pc, call, &missing);
	if (!rule) {
		if (missing && !s->unwind.untabled)
			s->unwind.untabled = pc;
		s->unwind.wanted |= missing && s->unwind.serial;
		return NO_TABLE;
	}
	why = apply_rule(rule, pc, sp, bp);
	if (why == END_RULE)
		count(UNWIND_UNSUPPORTED, 1);
	else if (why && why != END_ROOT)
		count(UNWIND_BROKEN, 1);
	s->unwind.frames++;
	s->unwind.led = 1;
	return why ? why : UNWOUND;
}

/* Whether a table led to where the walk stands. */
static __always_inline bool led_by_table(const struct scratch *s)
{
	return s->unwind.walk == s->start.walk && s->unwind.led;
}

/* The walk ended, or went on elsewhere, at native code that may have no frame pointer. */
static __always_inline void want_table(struct scratch *s)
{
	if (s->unwind.walk == s->start.walk)
		s->unwind.wanted = 1;
}

/*
 * Processes that are younger leave no request. Those of a build end before they are that old: their
 * mappings would be read for a few samples.
 */
#define UNWIND_LEAST_AGE_NS 50000000

/* Leaves a request for the tables that a walk lacked. */
__noinline int request_tables(void)
{
	struct scratch *s = this_scratch();
	struct unwind_want want = {};
	__u32 pid;

	if (!s)
		return 0;
	pid = s->sample.header.pid;
	count(UNWIND_UNTABLED, 1);
	if (bpf_ktime_get_boot_ns() < s->sample.header.start + UNWIND_LEAST_AGE_NS) {
		count(UNWIND_YOUNG, 1);
		return 0;
	}
	if (bpf_map_lookup_elem(&unwind_wanted, &pid))
		return 0;
	want.sampled = s->regs.pc;
	want.untabled = s->unwind.untabled;
	if (bpf_map_update_elem(&unwind_wanted, &pid, &want, BPF_NOEXIST))
		count(UNWIND_REFUSED, 1);
	return 0;
}

/* Ends the native part of a walk. */
static __always_inline void end_unwinding(struct scratch *s)
{
	if (s->unwind.walk != s->start.walk)
		return; /* it came to no native code */
	if (s->unwind.frames) {
		count_walk(UNWIND_FRAMES, s->unwind.frames);
		if (s->unwind.misses)
			count(UNWIND_MISSES, s->unwind.misses);
	}
	if (s->unwind.wanted && s->unwind.untabled)
		request_tables();
}
#else
static __always_inline int unwind_frame(struct scratch *s, __u64 pc, __u64 sp, __u64 bp, __u64 leaf)
{
	asm volatile("" : : "r"(pc)); /* a global function must use all of its arguments */
	s->unwind.stack_to = s->start.stack_base;
	return NO_TABLE;
}

static __always_inline void want_table(struct scratch *s) {}
static __always_inline bool led_by_table(const struct scratch *s)
{
	return false;
}
static __always_inline void end_unwinding(struct scratch *s) {}
#endif
