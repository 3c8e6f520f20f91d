/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The frames of a mounted virtual thread that are not on its carrier's stack. A virtual thread that yields leaves its
 * frames in objects of the heap, the StackChunks of its Continuation. When it goes on, HotSpot copies one or two frames
 * back; the outermost of them returns to the return barrier, which copies the next one. So the walk goes on in the newest
 * chunk, then in its parents, and then at the ContinuationEntry: the frame of enterSpecial, where the virtual thread's
 * frames begin on the carrier's stack.
 *
 *   carrier's stack        outer frames, ContinuationEntry, (arguments), return barrier, frames that were copied back
 *   StackChunk             header and fields, free words up to sp, frames up to bottom, (arguments)
 *
 * In a chunk a compiled frame is what it is on the stack. In an interpreted frame the sender's sp, and below a frame whose
 * caller is interpreted the saved rbp, are words from where they stand or from the frame's rbp, so that chunks can be moved.
 *
 * A collector may move chunks. What is taken for a chunk has the class, and belongs to the Continuation that the entry names.
 */
#pragma once

#include "oop.bpf.h"
#include "frames.bpf.h"
#include "return.bpf.h"

#define ENTRY_WORDS 64	/* how far above the return barrier the entry is searched: the arguments of one call are between */
#define EMPTY_CHUNKS 4	/* chunks in a row without frames: HotSpot leaves one at most */
#define NO_CHUNK (END_COUNT + 1)
#define CHUNK_WORDS (1 << 24) /* more than a stack has */
#define CHUNK_READS 16	/* what LOOKUP_BUDGET is charged for a chunk, so that chunks that are each other's parents end soon */

static __always_inline bool in_heap(const struct hotspot_process *vm, __u64 v)
{
	return v >= vm->heap_low && v < vm->heap_high && !(v & 7);
}

/* The address in a reference of the heap; 0 for null. */
static __always_inline __u64 object_of(const struct hotspot_process *vm, __u64 reference)
{
	__u64 v = reference & vm->oop_mask;

	if (!v)
		return 0;
	if (vm->flags & HOTSPOT_COLOURED)
		return uncoloured_by(vm->oop_colour_shift, v);
	return vm->oop_base + (v << (vm->oop_shift & 31));
}

/*
 * Where a reference, of the Continuation in scratch.start or of a younger chunk of it, leads: returns 0 and leaves a chunk of that
 * Continuation in scratch, or NO_CHUNK for null, or an enum walk_end. A chunk that has moved may have left its place to another
 * thread's. Then what is there does not refer to the Continuation, or does so where that was before. ZGC leaves references as
 * they are for long: there the one to the chunk suffices if it was written since.
 */
__noinline int find_chunk(__u32 pid, __u64 reference)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	__u64 chunk, klass, back, bad;

	if (!vm || !s)
		return END_READ;
	chunk = object_of(vm, reference);
	s->start.chunk_at = chunk;
	if (!chunk)
		return NO_CHUNK;
	if (!in_heap(vm, chunk))
		return END_HEAP;
	klass = read_word(chunk + vm->chunk_klass_at) >> (vm->chunk_klass_shift & 63);
	if ((klass & vm->chunk_klass_mask) != vm->chunk_klass)
		return END_HEAP;
	back = read_word(chunk + vm->chunk_cont);
	if (!((object_of(vm, back) ^ s->start.continuation) & vm->address_mask))
		return 0;
	bad = vm->bad_colours ? read_word(vm->bad_colours) : 0;
	return bad && !(reference & bad) && (back & bad) ? 0 : END_HEAP;
}

/* Where the memory ends in which the walk stands: the stack, or the chunk that ends there. */
static __always_inline void stand_in(struct scratch *s, __u64 chunk_to)
{
	s->start.chunk_to = chunk_to;
	s->start.stack_to = chunk_to ? chunk_to : s->start.stack_base;
	s->start.heap_from = chunk_to ? chunk_to - 16 : ~0ull; /* no frame is without return address and rbp */
	s->start.relative = chunk_to ? ~0ull : 0;
}

/*
 * Looks for the ContinuationEntry above the return barrier, where sp is. No table of JDK 21 says where it is: it is the
 * first place with a Continuation whose newest chunk is one of it. Leaves it, and that chunk, in scratch.
 * Returns 0 or an enum walk_end.
 */
__noinline int find_continuation(__u32 pid, __u64 sp)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	__u32 first;

	if (!vm || !s || !vm->return_barrier)
		return END_NO_CODE; /* a return address of 0, in a VM without virtual threads */
	if (!(vm->flags & HOTSPOT_CHUNKS))
		return END_HEAP;
	if (bpf_probe_read_user(s->words, ENTRY_WORDS * 8, (void *)sp))
		return END_READ;
	first = vm->entry_cont / 8;
	for (__u32 i = 0; i < ENTRY_WORDS; i++) {
		__u64 v = s->words[i];

		if (i < first || !in_heap(vm, v))
			continue;
		s->start.continuation = v;
		s->start.next_chunk = read_word(v + vm->cont_tail);
		if (find_chunk(pid, s->start.next_chunk))
			continue;
		s->start.entry = sp + 8 * i - vm->entry_cont;
		return 0;
	}
	return END_HEAP;
}

/*
 * To the frames of scratch.start.next_chunk, or the next one behind it that has any; behind the last one to the carrier's frames.
 * Returns 0, with the place in scratch.caller, or an enum walk_end.
 */
__noinline int next_chunk(__u32 pid)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct scratch *s = this_scratch();
	int why = 0;

	if (!vm || !s)
		return END_READ;
	for (int i = 0; i < EMPTY_CHUNKS; i++) {
		__u32 size, sp, bottom;
		__u64 chunk, at;

		if (!s->start.lookup_left)
			return END_SCAN;
		spend_lookup(s, CHUNK_READS);
		why = find_chunk(pid, s->start.next_chunk);
		if (why == NO_CHUNK)
			break;
		if (why)
			return why;
		chunk = s->start.chunk_at;
		size = read_int(chunk + vm->chunk_size);
		sp = read_int(chunk + vm->chunk_sp);
		bottom = read_int(chunk + vm->chunk_bottom);
		if (vm->flags & HOTSPOT_CHUNK_ARGSIZE)
			bottom = size - bottom;
		if (size > CHUNK_WORDS || bottom > size || sp > size)
			return END_HEAP;
		at = chunk + vm->chunk_stack;
		s->start.next_chunk = read_word(chunk + vm->chunk_parent);
		if (sp >= bottom)
			continue;
		stand_in(s, at + 8 * (__u64)bottom);
		at += 8 * (__u64)sp;
		s->caller.pc = read_word(chunk + vm->chunk_pc);
		s->caller.sp = at;
		s->caller.bp = at - 16 + 8 * read_word(at - 16);
		return s->caller.pc == read_word(at - 8) ? 0 : END_THAW; /* its sp and its pc are not written at once */
	}
	stand_in(s, 0);
	s->caller.pc = read_word(vm->enter_return);
	s->caller.sp = s->start.entry;
	s->caller.bp = 0;
	return why == NO_CHUNK && in_code_cache(vm, s->caller.pc) ? 0 : END_HEAP;
}

/*
 * The caller, on the heap or behind that, of the last one of that many frames, where sp is. Returns 0, with the caller in scratch,
 * or an enum walk_end.
 */
__noinline int heap_caller(__u32 pid, __u64 sp, __u32 frames)
{
	struct scratch *s = this_scratch();
	int why = 0;

	if (!s)
		return END_READ;
	if (contexts == CONTEXT_CHAIN)
		return END_HEAP; /* links know frames by where they stand on the stack */
	if (!s->start.chunk_to)
		why = find_continuation(pid, sp);
	else if (sp > s->start.chunk_to)
		why = END_HEAP;
	if (why)
		return why;
	if (!s->start.on_heap)
		s->start.on_heap = frames;
	return next_chunk(pid);
}

/* A pointer to the stack, as it was read from at: in a chunk it is a number of words from there. Not a branch: it would double the verifier's work. */
static __always_inline __u64 stack_pointer(const struct scratch *s, __u64 at, __u64 v)
{
	__u64 relative = s->start.relative;

	return (v << (relative & 3)) + (at & relative);
}
