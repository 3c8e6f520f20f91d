/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stacks repeat: what user space has of one is not sent again. A stack without its innermost frame,
 * and its outermost 4, 8, 12 … frames, are its suffixes. Each has a tag, the hash of its frames and
 * of whose they are. A tag is kept once a record with those frames is in the ring. A later sample
 * refers to the longest suffix whose tag is kept, and has only the frames before it (struct
 * short_sample).
 *
 * Records are read in their order, so user space has a suffix before the first record that refers
 * to it. When it forgets, it changes the seed of all tags, and everything is sent again.
 *
 * Two suffixes of one process may have the same tag by chance: with 2^17 known ones, and 2^17 new
 * ones a second, once in 2^30 seconds. Of two processes they would be told from each other.
 */
#pragma once

#include "kernel/ringwakeup.bpf.h"
#include "walk/walk.bpf.h"

#define SUFFIX_STEP 4	 /* frames from one suffix to the next */
#define MAX_SUFFIXES (MAX_USER_FRAMES / SUFFIX_STEP) /* that are not empty */
#define SUFFIX_LOOKUPS 16 /* longest suffixes of a stack that are looked for, and kept */
#define KNOWN_SETS (1 << 15) /* a power of two; 0.5 MB */
#define NAMED_THREADS (1 << 14) /* a power of two; 128 KB */
#define KNOWN_WAYS 2

/* Tags that may have their place here, the newest first; 0 for none. */
struct known_set {
	__u64 tags[KNOWN_WAYS];
};

/* key: tag >> SUFFIX_SLOT_SHIFT, modulo their number */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* for its alignment: no set is in two cache lines */
	__uint(max_entries, KNOWN_SETS);
	__type(key, __u32);
	__type(value, struct known_set);
} known_suffixes SEC(".maps");

/*
 * key: tid, folded; value: tag of the thread and its name, as the last record of it in full had
 * them
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMED_THREADS);
	__type(key, __u32);
	__type(value, __u64);
} named_threads SEC(".maps");

/* key: 0; what all tags begin with. 0: no sample refers to another one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} suffix_seed SEC(".maps");

/* A sample begins: touches what refer needs, before it needs it. */
static __always_inline void begin_stack(const struct scratch *s, __u32 tid)
{
	__u32 zero = 0, i = tid & (NAMED_THREADS - 1);
	__u64 *seed = bpf_map_lookup_elem(&suffix_seed, &zero), *named = bpf_map_lookup_elem(&named_threads, &i);

	touch(&s->stack);
	if (seed)
		touch(seed);
	if (named)
		touch(named);
}

static __always_inline struct known_set *known_set_of(__u64 tag)
{
	__u32 i = tag >> SUFFIX_SLOT_SHIFT & (KNOWN_SETS - 1);

	return bpf_map_lookup_elem(&known_suffixes, &i);
}

static __always_inline __u64 *named_thread_of(__u32 tid)
{
	__u32 i = tid & (NAMED_THREADS - 1);

	return bpf_map_lookup_elem(&named_threads, &i);
}

/*
 * Suffixes of one stack. Their tags are in scratch.stackcopy once the stack was walked: suffix i
 * has 4 i frames, the last one the rest.
 */
struct suffixes {
	struct scratch *s;
	__u64 tag;
	__u32 frames; /* of the stack */
	__u32 count; /* of suffixes that are not empty */
	__u32 base;  /* the one that is known, ~0 if none is */
};

/* bpf_loop callback: the tag of suffix i + 1. No frame is 0. */
static long tag_suffix(__u64 i, struct suffixes *x)
{
	__u32 at = x->frames - 1 - SUFFIX_STEP * (__u32)i; /* the outermost frame that the suffix before did not have */
	const __u64 *w;
	__u64 v;

	asm volatile("" : "+r"(at)); /* what is compared is what is used */
	asm volatile("" : "+r"(i));
	if (at >= MAX_USER_FRAMES || i >= MAX_SUFFIXES)
		return 1;
	w = (void *)x->s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) - 3 * sizeof(*w);
	w += at;
	v = w[3] * 0x9e3779b97f4a7c15ull;
	if (at > 3) {
		v += w[2] * 0xc2b2ae3d27d4eb4full + w[1] * 0x165667b19e3779f9ull + w[0] * 0xd6e8feb86659fd93ull;
	} else { /* not the innermost frame, 0 */
		if (at > 1)
			v += w[2] * 0xc2b2ae3d27d4eb4full;
		if (at > 2)
			v += w[1] * 0x165667b19e3779f9ull;
	}
	x->tag = mix(x->tag, v);
	x->s->stackcopy[i + 1] = x->tag;
	return 0;
}

static __always_inline __u64 *tag_of(struct suffixes *x, __u32 i)
{
	asm volatile("" : "+r"(i));
	return i <= MAX_SUFFIXES ? &x->s->stackcopy[i] : 0;
}

/* bpf_loop callback: whether the suffix that is i shorter ones before the longest is known. */
static long find_suffix(__u64 i, struct suffixes *x)
{
	__u64 *tag = tag_of(x, x->count - (__u32)i);
	struct known_set *set;

	if (!tag)
		return 1;
	set = known_set_of(*tag);
	if (!set || (set->tags[0] != *tag && set->tags[1] != *tag))
		return 0;
	x->base = x->count - (__u32)i;
	return 1;
}

/* bpf_loop callback: the same one is known from now on. */
static long keep_suffix(__u64 i, struct suffixes *x)
{
	__u64 *tag = tag_of(x, x->count - (__u32)i);
	struct known_set *set;

	if (!tag)
		return 1;
	set = known_set_of(*tag);
	if (!set || set->tags[0] == *tag || set->tags[1] == *tag)
		return 0;
	set->tags[1] = set->tags[0];
	set->tags[0] = *tag;
	return 0;
}

/*
 * How many suffixes of a stack are looked for, and kept: the longest ones, and the empty one if it
 * is among them.
 */
static __always_inline __u32 looked_for(__u32 count)
{
	return count + 1 < SUFFIX_LOOKUPS ? count + 1 : SUFFIX_LOOKUPS;
}

/*
 * Looks for the longest known suffix of the sample's user stack. If there is one, and the thread's
 * name is known, user_frames is what comes before it. The kernel's frames are to come behind these.
 */
__noinline int refer(void)
{
	struct scratch *s = this_scratch();
	struct suffixes x = {.s = s, .base = NO_SUFFIX};
	__u32 zero = 0, n, at;
	__u64 *seed = bpf_map_lookup_elem(&suffix_seed, &zero), *named;
	struct sample *r;

	if (!s)
		return 0;
	r = &s->sample;
	s->stack.frames = n = r->user_frames;
	s->stack.base = NO_SUFFIX;
	s->stack.root = 0;
	if (!seed || !*seed || n > MAX_USER_FRAMES || r->header.left_out)
		return 0;
	x.tag = mix(mix(*seed, r->header.start), (__u64)r->header.exec << 32 | r->header.pid);
	s->stack.thread = mix(mix(mix(x.tag, r->header.tid), *(__u64 *)r->comm), *(__u64 *)(r->comm + 8));
	x.tag = mix(x.tag, (__u64)r->attachment << 32 | r->class_epoch);
	s->stack.root = s->stackcopy[0] = x.tag;
	x.frames = n;
	x.count = n ? (n - 1 + SUFFIX_STEP - 1) / SUFFIX_STEP : 0;
	s->stack.suffixes = x.count;
	bpf_loop(x.count, tag_suffix, &x, 0);
	named = named_thread_of(r->header.tid);
	if (!named || *named != s->stack.thread)
		return 0;
	bpf_loop(looked_for(x.count), find_suffix, &x, 0);
	at = x.base;
	if (at > MAX_SUFFIXES)
		return 0;
	s->stack.base = at;
	s->stack.tag = s->stackcopy[at];
	r->user_frames = at == x.count ? n > 0 : n - SUFFIX_STEP * at;
	return 0;
}

/* The record with what refer did not find is in the ring. */
__noinline int keep_suffixes(void)
{
	struct scratch *s = this_scratch();
	struct suffixes x = {.s = s};
	__u64 *named;
	__u32 n;

	if (!s)
		return 0;
	x.count = s->stack.suffixes;
	n = looked_for(x.count);
	if (s->stack.base != NO_SUFFIX) {
		if (n > x.count - s->stack.base)
			n = x.count - s->stack.base;
	} else {
		named = named_thread_of(s->sample.header.tid);
		if (named)
			*named = s->stack.thread;
	}
	if (n)
		bpf_loop(n, keep_suffix, &x, 0);
	return 0;
}

/* Appends the tag that others refer to behind so many frames; returns its size in bytes. */
static __always_inline __u32 append_root(struct scratch *s, __u32 at)
{
	__u64 *root = behind_frames(s, at);

	if (!root)
		return 0;
	*root = s->stack.root;
	s->sample.header.kind = EVENT_FULL_SAMPLE;
	return sizeof(*root);
}

/*
 * Where the record of a sample begins that refers to another one: it ends where that of the sample
 * would.
 */
static __always_inline struct short_sample *short_record(struct scratch *s)
{
	return (void *)s + offsetof(struct scratch, sample) +
		offsetof(struct sample, frames) - sizeof(struct short_sample);
}

/* Makes that record of the sample. */
__noinline int shorten(void)
{
	struct scratch *s = this_scratch();
	struct short_sample *o;
	struct event_header h;
	struct sample *r;
	__u16 user, kernel, cpu;
	__u8 end, flags;

	if (!s)
		return 0;
	r = &s->sample;
	o = short_record(s);
	h = r->header;
	user = r->user_frames;
	kernel = r->kernel_frames;
	end = r->end;
	flags = r->flags;
	cpu = r->cpu;
	barrier(); /* they overlap */
	h.kind = EVENT_SHORT_SAMPLE;
	o->header = h;
	o->user_frames = user;
	o->kernel_frames = kernel;
	o->end = end;
	o->flags = flags;
	o->cpu = cpu;
	o->base = s->stack.tag;
	return 0;
}

/* Takes the stack that begins at scratch.regs. vm is 0 where the process has no attached VM. */
static __always_inline void take_stack(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task,
				       __u32 pid, __u32 tid)
{
	begin_walks(s, vm, task, tid);
	walk_user(s, vm);
}

/* Leaves out what user space has. */
static __always_inline void shorten_stack(struct scratch *s)
{
	refer();
}

/* Writes the record of the sample; returns its size in bytes, 0 if it was lost. */
static __always_inline __u64 write_sample(struct scratch *s)
{
	const __u64 left_out = offsetof(struct sample, frames) - sizeof(struct short_sample);
	__u32 n = (__u32)s->sample.user_frames + s->sample.kernel_frames;
	__u64 size = offsetof(struct sample, frames) + 8 * (__u64)n, room = sizeof(s->sample) + sizeof(s->tail);
	void *record = &s->sample;

	if (s->stack.root && s->stack.base == NO_SUFFIX) {
		size += append_root(s, n);
	} else if (s->stack.root) {
		shorten();
		record = short_record(s);
		size -= left_out;
		room -= left_out;
	}
	if (size > room)
		size = room;
	if (bpf_ringbuf_output(&events, record, size, wakeup_flags()))
		return 0;
	if (s->stack.root && s->stack.base != s->stack.suffixes)
		keep_suffixes();
	return size;
}
