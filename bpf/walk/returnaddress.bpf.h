/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Return addresses on the stack, and by them the callers of code that has no frame of a known size,
 * on x86-64.
 */
#pragma once

#include "walk/codeblob.bpf.h"
#include "walk/walkdeadline.bpf.h"

/* Whether six bytes end in a call. */
static __always_inline bool is_call(const __u8 *b)
{
	return b[1] == 0xe8 || /* call rel32 */
	       (b[0] == 0xff && (b[1] & 0x38) == 0x10) || (b[3] == 0xff && (b[4] & 0x38) == 0x10) ||
	       (b[4] == 0xff && (b[5] & 0x38) == 0x10); /* call [r + d32], [r + d8], r */
}

/*
 * Whether v, which is in the code cache, follows a call, or points into the interpreter, which
 * pushes its own addresses.
 */
__noinline int follows_call(const struct hotspot_process *vm, __u64 v)
{
	__u8 b[8] = {};

	if (!vm)
		return 0;
	if (v - vm->interpreter_low < vm->interpreter_high - vm->interpreter_low || v == vm->return_barrier)
		return 1;
	if (bpf_probe_read_user(b, 6, (void *)(v - 6)))
		return 0;
	return is_call(b);
}

/*
 * Whether v is a return address into the code cache. Searches ask in loops, of which the verifier
 * follows each round: so they are short.
 */
static __always_inline bool is_return(const struct hotspot_process *vm, __u64 v)
{
	return in_code_cache(vm, v) && follows_call(vm, v);
}

/* How many of so many words fit into scratch.words. */
static __always_inline __u64 scannable(__u32 words)
{
	__u64 n = words;

	asm volatile("" : "+r"(n)); /* Linux 6.1 loses the bound of half a register that was copied */
	return n < SCAN_WORDS ? n : SCAN_WORDS;
}

/*
 * Takes words from what may still be searched for this sample. Whoever writes a stack decides how
 * much there is to search in it, and a tick does it with interrupts off: so there is one budget for
 * all searches of a sample.
 */
static __always_inline void spend_scan(struct scratch *s, __u32 words)
{
	__u32 left = s->start.scan_left;

	s->start.scan_left = left > words ? left - words : 0;
	s->start.unclocked += words;
}

/* Counts words that were searched. */
__noinline int count_scanned(__u32 words)
{
	count_walk(WORDS_SCANNED, words);
	return 0;
}

/*
 * The same for a search of up to so many words; returns how many it may take. It gives back what it
 * does not need.
 */
static __always_inline __u64 take_scan(struct scratch *s, __u64 words)
{
	__u32 left = s->start.scan_left;

	/* or the verifier follows the search for each bound that it may have */
	words = any(s, words < left ? words : left);
	s->start.scan_left = left - words;
	s->start.unclocked += words;
	return words;
}

/*
 * Index of the first return address from scratch.words[from] on, before words[to], in as many words
 * as are looked at together. If there is none, the complement of where to go on, which is behind
 * all words once the time has passed. Not inlined: the verifier follows each round of a loop, and
 * so there are fewer of them.
 */
__noinline int return_among(const struct hotspot_process *vm, __u32 from, __u32 to)
{
	struct scratch *s = this_scratch();
	__u64 at = from, end = scannable(to);

	if (!vm || !s || (from && out_of_time()))
		return ~SCAN_WORDS;
	for (__u32 i = 0; i < SCAN_GROUP; i++, at++) {
		asm volatile("" : "+r"(at)); /* what is compared is what is used */
		if (at >= end)
			break;
		if (is_return(vm, s->words[at]))
			return at;
	}
	return ~(int)at;
}

/*
 * Index of the first word from sp that is a return address into the code cache; -1 if there is
 * none, or the budget ended.
 */
__noinline int find_return(const struct hotspot_process *vm, __u64 sp, __u32 words)
{
	struct scratch *s = this_scratch();
	__u64 n = scannable(words);

	if (!vm || !s || !s->start.scan_left)
		return -1;
	if (bpf_probe_read_user(s->words, n * 8, (void *)sp)) {
		if (n < 4 || bpf_probe_read_user(s->words, 32, (void *)sp))
			return -1;
		n = 4;
	}
	n = take_scan(s, n);
	for (__u32 from = 0; from < SCAN_WORDS; from += SCAN_GROUP) {
		int i = from < n ? return_among(vm, from, n) : -1;

		if (i >= 0) {
			s->start.scan_left += n - i - 1;
			return i;
		}
	}
	return -1;
}

/*
 * Whether the frame at bp is one of the interpreter: it holds a method, and a pointer into that
 * method's bytecode.
 */
static __always_inline bool interpreted_at(const struct hotspot_process *vm, __u64 bp)
{
	__u64 cm = read_word(read_word(bp + vm->interp_method) + vm->method_const);
	__u64 bcp = read_word(bp + vm->interp_bcp) - cm - vm->const_method_size;

	return cm && bcp < (read_int(cm + vm->const_method_code_size) & 0xffff);
}

#define ENTRY_BARRIER_COOKIE (~0ull) /* below the return address of StubRoutines::method_entry_barrier */
#define STUB_REACH 4096 /* bytes; the vectorised checksums keep 1 KB on the stack */

/*
 * The caller of a stub. A stub with a frame of known size is taken by that, unless it was sampled
 * before the frame stood. Most others begin with push rbp; mov rbp, rsp. What is left pushes little
 * that is no code address, so the first return address up the stack is its own; rbp is still the
 * caller's then, and was saved right below if it points there. Returns 0 or an enum walk_end; the
 * caller is in scratch.
 */
__noinline int stub_caller(const struct hotspot_process *vm, __u64 sp, __u64 bp, __u32 frame)
{
	struct scratch *s = this_scratch();
	__u64 ra;
	int i;

	if (!vm || !s)
		return END_READ;
	if ((__s32)frame > 0) {
		ra = read_word(sp + frame - 8);
		if (in_code_cache(vm, ra)) {
			s->caller.pc = ra;
			s->caller.sp = sp + frame;
			s->caller.bp = read_word(sp + frame - 16);
			return 0;
		}
	}
	if (bp >= sp && bp - sp < STUB_REACH && !(bp & 7)) {
		__u64 at = bp + 8;

		ra = read_word(at);
		if (ra == ENTRY_BARRIER_COOKIE)
			ra = read_word(at += 8);
		if (is_return(vm, ra) && !interpreted_at(vm, bp)) {
			s->caller.pc = ra;
			s->caller.sp = at + 8;
			s->caller.bp = read_word(bp);
			return 0;
		}
	}
	i = find_return(vm, sp, SCAN_WORDS);
	barrier_var(i);
	if (i < 0 || i >= SCAN_WORDS)
		return s->start.scan_left ? END_NO_CODE : END_SCAN;
	s->caller.pc = s->words[i];
	s->caller.sp = sp + 8 * (__u64)i + 8;
	s->caller.bp = i > 0 && bp + 8 == sp + 8 * (__u64)i ? s->words[i - 1] : bp;
	return 0;
}
