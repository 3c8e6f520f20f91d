/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The frames of a mounted virtual thread that are not on its carrier's stack. A virtual thread that
 * yields leaves its frames in objects of the heap, the StackChunks of its Continuation. When it
 * goes on, HotSpot copies one or two frames back; the outermost of them returns to the return
 * barrier, which copies the next one. So the walk goes on in the newest chunk, then in its parents,
 * and then at the ContinuationEntry: the frame of enterSpecial, where the virtual thread's frames
 * begin on the carrier's stack.
 *
 *   carrier's stack        outer frames, ContinuationEntry, (arguments), return barrier, frames
 *                          that were copied back
 *   StackChunk             header and fields, free words up to sp, frames up to bottom, (arguments)
 *
 * In a chunk a compiled frame is what it is on the stack. In an interpreted frame the sender's sp,
 * and below a frame whose caller is interpreted the saved rbp, are words from where they stand or
 * from the frame's rbp, so that chunks can be moved.
 *
 * A collector may move chunks. What is taken for a chunk has the class, and belongs to the
 * Continuation that the entry names.
 */
#pragma once

#include "walk/oop.bpf.h"
#include "walk/zforwarding.bpf.h"
#include "walk/frames.bpf.h"
#include "walk/returnaddress.bpf.h"

/* how far above the return barrier the entry is searched: the arguments of one call are between */
#define ENTRY_WORDS 64
#define EMPTY_CHUNKS 4	/* chunks in a row without frames: HotSpot leaves one at most */
#define NO_CHUNK (END_COUNT + 1)
#define CHUNK_WORDS (1 << 24) /* more than a stack has */
#define THAW_MEMBERS 8	/* words of libjvm's ThawBase up to _top_unextended_sp_before_thaw: they are 6 */
/*
 * what LOOKUP_BUDGET is charged for a chunk, so that chunks that are each other's parents end
 * soon
 */
#define CHUNK_READS 16

static __always_inline bool in_heap(const struct hotspot_process *vm, __u64 v)
{
	return v - vm->heap_low < vm->heap_high - vm->heap_low && !(v & 7);
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
 * Where scratch.start.next_chunk, of the Continuation there or of a younger chunk of it, leads:
 * returns 0 and leaves a chunk of that Continuation in scratch, or NO_CHUNK for null, or an enum
 * walk_end. A chunk that has moved may have left its place to another thread's. Then what is there
 * does not refer to the Continuation, or does so where that was before. ZGC leaves references as
 * they are for long: there the one to the chunk suffices if it was written since. One that was not
 * leads to where the chunk was, and that chunk's to where the Continuation was.
 */
__noinline int find_chunk(const struct hotspot_process *vm)
{
	struct scratch *s = this_scratch();
	__u64 chunk, at, back, bad;

	if (!vm || !s)
		return END_READ;
	chunk = object_of(vm, s->start.next_chunk);
	if (!chunk) {
		s->start.chunk_at = 0;
		return NO_CHUNK;
	}
	if (!in_heap(vm, chunk))
		return END_HEAP;
	bad = vm->bad_colours ? read_word(vm->bad_colours) : 0;
	if ((s->start.next_chunk & bad) && find_moved(vm, chunk))
		chunk = s->moved;
	s->start.chunk_at = chunk;
	if ((read_word(chunk + vm->chunk_klass_at) >> (vm->chunk_klass_shift & 63) & vm->chunk_klass_mask) !=
	    vm->chunk_klass)
		return END_HEAP;
	back = read_word(chunk + vm->chunk_cont);
	at = object_of(vm, back);
	if (!((at ^ s->start.continuation) & vm->address_mask))
		return 0;
	if (!bad)
		return END_HEAP;
	if (back & bad) {
		if (!(s->start.next_chunk & bad))
			return 0;
		if (find_moved(vm, at))
			at = s->moved;
		if (!((at ^ s->start.continuation) & vm->address_mask))
			return 0;
	}
	/* The VM may not have updated the ContinuationEntry either. */
	return find_moved(vm, s->start.continuation) && !((at ^ s->moved) & vm->address_mask) ? 0 : END_HEAP;
}

/* Whether there is a Continuation at v, with a chunk. Leaves it and its newest chunk in scratch. */
static __always_inline bool find_newest(const struct hotspot_process *vm, struct scratch *s, __u64 v)
{
	if (!in_heap(vm, v))
		return false;
	s->start.continuation = v;
	s->start.next_chunk = read_word(v + vm->cont_tail);
	return !find_chunk(vm);
}

/* The same of a word. The verifier follows each round of a search: so it is short. */
__noinline int is_continuation(const struct hotspot_process *vm, __u64 v)
{
	struct scratch *s = this_scratch();

	return vm && s && !out_of_time() && find_newest(vm, s, v);
}

/*
 * Whether the walk is of a virtual thread that is on no stack: only of stacks that are read from
 * outside.
 */
static __always_inline bool unmounted(const struct scratch *s)
{
#ifdef ALONE
	return s->start.unmounted;
#else
	return false;
#endif
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
 * Looks for the ContinuationEntry above the return barrier, where sp is. No table of JDK 21 says
 * where it is: it is the first place with a Continuation whose newest chunk is one of it. Leaves
 * it, and that chunk, in scratch. Returns 0 or an enum walk_end.
 */
__noinline int find_continuation(const struct hotspot_process *vm, __u64 sp)
{
	struct scratch *s = this_scratch();

	if (!vm || !s || !vm->return_barrier)
		return END_NO_CODE; /* a return address of 0, in a VM without virtual threads */
	if (!(vm->flags & HOTSPOT_CHUNKS))
		return END_HEAP;
	if (bpf_probe_read_user(s->words, ENTRY_WORDS * 8, (void *)(sp + vm->entry_cont)))
		return END_READ;
	for (__u32 i = 0; i < ENTRY_WORDS; i++) {
		if (is_continuation(vm, s->words[i])) {
			s->start.entry = sp + 8 * i;
			return 0;
		}
	}
	return END_HEAP;
}

/* Looks at one of the words for all_frozen, from the first one to the last. */
__noinline int look_for_frozen(const struct hotspot_process *vm, __u64 word)
{
	struct scratch *s = this_scratch();

	if (!vm || !s)
		return 0;
	if (word == s->start.thread) {
		s->frozen.left = THAW_MEMBERS;
	} else if (s->frozen.left) {
		s->frozen.left--;
		word = (word - s->frozen.begin) & vm->address_mask;
		if (word < s->frozen.size) {
			/*
			 * the last one counts: further from the thaw's caller may be what others
			 * have left
			 */
			s->frozen.from = word;
			s->frozen.left = 0;
		}
	}
	return 0;
}

/*
 * Whether the VM, which is to copy frames back from the newest chunk, has not begun to. words are
 * the frame of its function thaw. There is an object that begins with the JavaThread*, and has
 * where the chunk's frames began. If they still do, they are all in the chunk.
 */
__noinline int all_frozen(const struct hotspot_process *vm)
{
	struct scratch *s = this_scratch();

	if (!vm || !s)
		return 0;
	s->frozen.begin = s->start.chunk_at + vm->chunk_stack;
	s->frozen.size = 8 * (__u64)read_int(s->start.chunk_at + vm->chunk_size);
	s->frozen.from = ~0ull;
	s->frozen.left = 0;
	for (__u32 i = 0; i < SCAN_WORDS; i++)
		look_for_frozen(vm, s->words[i]);
	return s->frozen.from == 8 * (__u64)read_int(s->start.chunk_at + vm->chunk_sp);
}

/*
 * Whether v is the address of a ContinuationEntry, further up the stack than sp. As
 * is_continuation.
 */
__noinline int is_entry(const struct hotspot_process *vm, __u64 sp, __u64 v)
{
	struct scratch *s = this_scratch();

	if (!vm || !s || v < sp || v >= s->start.stack_base || (v & 7) || out_of_time())
		return 0;
	return find_newest(vm, s, read_word(v + vm->entry_cont));
}

/*
 * As find_continuation, where libjvm's function thaw was called, and sp is behind its frame, in
 * which the ContinuationEntry is. The VM looks at frames and has the collector's barriers see to
 * their references, then takes them off the chunk, and then copies them. Until it takes them off,
 * all are on the heap. After that some are in two places or in none.
 */
__noinline int find_thawing(const struct hotspot_process *vm, __u64 sp)
{
	struct scratch *s = this_scratch();

	if (!vm || !s || !(vm->flags & HOTSPOT_CHUNKS) || !s->start.thread)
		return END_THAW;
	if (bpf_probe_read_user(s->words, sizeof(s->words), (void *)(sp - sizeof(s->words))))
		return END_THAW;
	for (__u32 i = 0; i < SCAN_WORDS; i++) {
		if (is_entry(vm, sp, s->words[i])) {
			s->start.entry = s->words[i];
			return all_frozen(vm) ? 0 : END_THAW;
		}
	}
	return END_THAW;
}

/*
 * To the frames of scratch.start.next_chunk, or the next one behind it that has any; behind the
 * last one to the carrier's frames. Returns 0, with the place in scratch.caller, or an enum
 * walk_end.
 */
__noinline int next_chunk(const struct hotspot_process *vm)
{
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
		why = find_chunk(vm);
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
	if (unmounted(s))
		return why == NO_CHUNK ? END_ROOT : END_HEAP;
	stand_in(s, 0);
	s->caller.pc = read_word(vm->enter_return);
	s->caller.sp = s->start.entry;
	s->caller.bp = 0;
	return why == NO_CHUNK && in_code_cache(vm, s->caller.pc) ? 0 : END_HEAP;
}

/*
 * The caller, on the heap or behind that, of the last one of that many frames, where sp is. Returns
 * 0, with the caller in scratch, or an enum walk_end.
 */
__noinline int heap_caller(const struct hotspot_process *vm, __u64 sp, __u32 frames)
{
	struct scratch *s = this_scratch();
	int why = 0;

	if (!s)
		return END_READ;
	if (s->start.thawing)
		why = find_thawing(vm, sp);
	else if (!s->start.chunk_to)
		why = find_continuation(vm, sp);
	else if (sp > s->start.chunk_to)
		why = END_HEAP;
	s->start.thawing = 0;
	if (why)
		return why;
	if (!s->start.on_heap)
		s->start.on_heap = frames;
	return next_chunk(vm);
}

/*
 * A pointer to the stack, as it was read from at: in a chunk it is a number of words from there.
 * Not a branch: it would double the verifier's work.
 */
static __always_inline __u64 stack_pointer(const struct scratch *s, __u64 at, __u64 v)
{
	__u64 relative = s->start.relative;

	return (v << (relative & 3)) + (at & relative);
}
