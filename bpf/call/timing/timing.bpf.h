/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Watches that time invocations of a method. At the entry of its code the return address is known.
 * If that is watched, too, the invocation ends when the same thread arrives there with the stack
 * pointer that a return leaves behind.
 *
 * What is timed goes from the end of the program's run at the entry to its beginning at the return
 * address. So it includes the way out of one trap and the way into another. A watch of two
 * instructions that follow each other measures that.
 *
 * Watches of a loop time its rounds: from one arrival at a place in the loop to the next, in the
 * same frame. A value of the frame at both ends shows how many iterations a round has. Arrivals at
 * other addresses, outside the loop, end rounds without a timing.
 *
 * Each thread has a slot of its own, which user space fills in. Only the thread itself writes it,
 * so there are no races.
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there
 * (bpf_prog_active).
 */
#pragma once

#include "kernel/operand.bpf.h"
#include "kernel/watch.bpf.h"

#define MAX_TIMED 128	     /* timings, or callers, of a watch */
#define MAX_TIMED_THREADS 16 /* threads of a watch */
#define MAX_TIMED_DEPTH 8    /* open invocations of a thread: the method may call itself. A power of two */

enum timing_mode {
	TIMING_CALLERS,	    /* addresses are entries: who calls is recorded */
	TIMING_PAIR,	    /* addresses are two instructions, one right behind the other: the cost of a timing */
	TIMING_INVOCATIONS, /* addresses are an entry and return addresses */
	TIMING_ROUNDS,	    /* the first addresses, as many as places says, are in a loop; the others are outside */
};

/* What became of invocations or rounds that were not timed. */
enum timing_loss {
	TIMING_UNWATCHED, /* the return address is not watched */
	TIMING_UNWOUND,	  /* the frame went away without a return there: an exception, or its caller was deoptimised */
	TIMING_DEEP,	  /* the thread has MAX_TIMED_DEPTH open ones */
	TIMING_NO_SLOT,	  /* the thread has no slot */
	TIMING_LEFT,	  /* the thread left the loop in this round */
	TIMING_LOSSES,
};

/* An invocation, or a round, that has not ended. */
struct timing_open {
	__u64 sp;	/* at the entry; of a round: everywhere in the frame */
	__u64 ra;	/* where it returns to; of a round: the value at its begin */
	__u64 time;	/* ns, CLOCK_MONOTONIC, when the program ended */
	__u64 waited;	/* ns for which the thread had waited for a CPU by then */
	__u64 inner_ns; /* that the program took meanwhile, for other hits of the thread */
	__u32 inner;	/* those hits */
	__u32 pad;
};

struct timed_thread {
	__u32 tid; /* 0: the slot is not used */
	__u32 depth;
	struct timing_open open[MAX_TIMED_DEPTH]; /* callers before callees */
};

/* A timing. In TIMING_CALLERS an arrival: there are time, site, tid, ra. */
struct timed {
	__u64 time;	/* ns, CLOCK_MONOTONIC, at the end */
	__u64 ns;	/* since the start */
	__u64 waited;	/* of that, for a CPU */
	__u64 inner_ns; /* and in the program, for other hits of the thread */
	__u64 ra;	/* of a round: by how much the value grew in it */
	__u32 inner; /* those hits */
	__u32 tid;
	__u32 site; /* index in watch.addresses */
	__u32 pad;
};

struct timing_watch {
	struct watch watch; /* the limit, up to MAX_TIMED, is of invocations; each is claimed when it ends or is lost */
	__u64 until;	    /* ns, CLOCK_MONOTONIC: no invocation is taken that begins later */
	__u32 mode;
	__u32 places;	      /* of TIMING_ROUNDS: the first addresses that are in the loop */
	struct operand value; /* of TIMING_ROUNDS: where the value is at these */

	/* answers */
	__u32 over;    /* the end was announced before the limit */
	__u32 hits[WATCH_ADDRESSES]; /* of TIMING_ROUNDS: arrivals at each address until the last round was taken */
	__u32 started; /* invocations that were taken: those in all, those that are open, and lost ones */
	__u32 ended;   /* in timed[] */
	__u32 late;    /* beginnings behind the limit or the time */
	__u32 stray;   /* arrivals at a return address that end nothing */
	__u32 lost[TIMING_LOSSES];
	__u32 pad;
	struct timed_thread threads[MAX_TIMED_THREADS];
	struct timed timed[MAX_TIMED]; /* as they ended */
};

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHES);
	__type(key, __u32);
	__type(value, struct timing_watch);
} timing_watches SEC(".maps");

struct timing_hit {
	__u64 begin, pc, sp, link;
};

#if defined(__TARGET_ARCH_x86)
#define RETURN_BYTES 8 /* that a return takes from the stack */
#else
#define RETURN_BYTES 0
#endif

struct sched_info___delay {
	unsigned long long run_delay; /* ns that the task waited for a CPU, with CONFIG_SCHED_INFO */
} __attribute__((preserve_access_index));

struct task_struct___delay {
	struct sched_info___delay sched_info;
} __attribute__((preserve_access_index));

static __always_inline __u64 waited_of(struct task_struct *task)
{
	struct task_struct___delay *t = (struct task_struct___delay *)task;

	return bpf_core_field_exists(t->sched_info.run_delay) ? t->sched_info.run_delay : 0;
}

/* Where an invocation returns to that arrived with these registers. */
static __always_inline __u64 return_address(const struct timing_hit *h)
{
#if defined(__TARGET_ARCH_x86)
	__u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)h->sp);
	return word;
#else
	return h->link;
#endif
}

/*
 * Which slot a thread has; MAX_TIMED_THREADS if none. Not inlined: the verifier would follow what
 * comes for each slot.
 */
__noinline int timed_slot(struct timing_watch *w, __u32 tid)
{
	for (__u32 i = 0; w && i < MAX_TIMED_THREADS; i++) {
		if (w->threads[i].tid == tid)
			return i;
	}
	return MAX_TIMED_THREADS;
}

static __always_inline struct timed_thread *timed_thread(struct timing_watch *w, __u32 tid)
{
	__u64 i = (__u32)timed_slot(w, tid);

	asm volatile("" : "+r"(i)); /* what is compared is what is used */
	return i < MAX_TIMED_THREADS ? &w->threads[i] : 0;
}

/* An invocation that was taken has ended or is lost. */
static __always_inline void timing_settle(struct timing_watch *w)
{
	watch_recorded(&w->watch, watch_claim(&w->watch));
}

static __always_inline void timing_lose(struct timing_watch *w, enum timing_loss why)
{
	__sync_fetch_and_add(&w->lost[why], 1);
	timing_settle(w);
}

/* Announces the end of a watch that waits for nothing any more. */
static __always_inline void timing_finish(struct timing_watch *w)
{
	__u64 number = w->watch.number;

	if (w->watch.claimed < w->started || __sync_lock_test_and_set(&w->over, 1))
		return;
	bpf_ringbuf_output(&watch_ends, &number, sizeof(number), BPF_RB_FORCE_WAKEUP);
}

/* Takes an invocation, unless the watch waits only for the ends of others. */
static __always_inline bool timing_admit(struct timing_watch *w, __u64 now)
{
	__u32 place;

	if (now > w->until || w->started >= w->watch.limit) {
		__sync_fetch_and_add(&w->late, 1);
		if (now > w->until)
			timing_finish(w);
		return false;
	}
	place = __sync_fetch_and_add(&w->started, 1);
	if (place < w->watch.limit)
		return true;
	__sync_fetch_and_add(&w->started, -1); /* another thread took the last one */
	__sync_fetch_and_add(&w->late, 1);
	return false;
}

static __always_inline struct timed *timing_record(struct timing_watch *w, struct task_struct *task,
						   const struct timing_hit *h, __u32 site)
{
	__u32 place = __sync_fetch_and_add(&w->ended, 1);
	struct timed *t;

	if (place >= MAX_TIMED)
		return 0;
	t = &w->timed[place];
	t->time = h->begin;
	t->tid = task->pid;
	t->site = site;
	return t;
}

/* The open invocation ends at a hit. */
static __always_inline void timing_end(struct timing_watch *w, struct task_struct *task, const struct timing_open *o,
				       const struct timing_hit *h, __u32 site)
{
	struct timed *t = timing_record(w, task, h, site);

	if (t) {
		t->ns = h->begin - o->time;
		t->waited = waited_of(task) - o->waited;
		t->inner = o->inner;
		t->inner_ns = o->inner_ns;
		t->ra = o->ra;
	}
	timing_settle(w);
}

/*
 * Gives up the invocations or rounds of a thread whose frames lie below sp, or at it if that is
 * wanted; why is an enum timing_loss. Not inlined: the verifier would follow the loop wherever it
 * is.
 */
__noinline int timing_unwind(struct timing_watch *w, struct timed_thread *t, __u64 sp, int at, __u32 why)
{
	if (!w || !t || why >= TIMING_LOSSES)
		return 0;
	for (__u32 i = 0; i < MAX_TIMED_DEPTH; i++) {
		__u32 depth = t->depth;
		__u64 open;

		if (depth == 0 || depth > MAX_TIMED_DEPTH)
			return 0;
		open = t->open[(depth - 1) & (MAX_TIMED_DEPTH - 1)].sp;
		if (open > sp || (open == sp && !at))
			return 0;
		t->depth = depth - 1;
		timing_lose(w, why);
	}
	return 0;
}

/* Opens an invocation. The caller sets its time last. */
static __always_inline struct timing_open *timing_push(struct timing_watch *w, struct task_struct *task,
						       struct timed_thread *t, __u64 sp, __u64 ra)
{
	__u32 depth = t->depth;
	struct timing_open *o;

	if (depth >= MAX_TIMED_DEPTH) {
		timing_lose(w, TIMING_DEEP);
		return 0;
	}
	o = &t->open[depth & (MAX_TIMED_DEPTH - 1)];
	t->depth = depth + 1;
	o->sp = sp;
	o->ra = ra;
	o->waited = waited_of(task);
	o->inner = 0;
	o->inner_ns = 0;
	return o;
}

/* The innermost open invocation of a thread, which is closed by that. */
static __always_inline struct timing_open *timing_pop(struct timed_thread *t)
{
	__u32 depth = t->depth;

	if (depth == 0 || depth > MAX_TIMED_DEPTH)
		return 0;
	t->depth = depth - 1;
	return &t->open[(depth - 1) & (MAX_TIMED_DEPTH - 1)];
}

static __always_inline __u64 timing_top(const struct timed_thread *t)
{
	__u32 depth = t->depth;

	if (depth == 0 || depth > MAX_TIMED_DEPTH)
		return 0;
	return t->open[(depth - 1) & (MAX_TIMED_DEPTH - 1)].sp;
}

static __always_inline void timing_caller(struct timing_watch *w, struct task_struct *task, const struct timing_hit *h,
					  __u32 site)
{
	struct timed *t;

	if (!timing_admit(w, h->begin))
		return;
	t = timing_record(w, task, h, site);
	if (t)
		t->ra = return_address(h);
	timing_settle(w);
}

static __always_inline bool timing_watches_address(const struct timing_watch *w, __u64 address)
{
	for (__u32 i = 1; i < WATCH_ADDRESSES; i++) {
		if (w->watch.addresses[i] == address)
			return true;
	}
	return false;
}

/* A thread arrives at the entry. */
static __always_inline struct timing_open *timing_enter(struct timing_watch *w, struct task_struct *task,
							struct timed_thread *t, const struct timing_hit *h)
{
	__u64 ra;

	timing_unwind(w, t, h->sp, true, TIMING_UNWOUND);
	if (!timing_admit(w, h->begin))
		return 0;
	if (w->mode == TIMING_PAIR)
		return timing_push(w, task, t, h->sp, h->pc);
	ra = return_address(h);
	if (!timing_watches_address(w, ra)) {
		timing_lose(w, TIMING_UNWATCHED);
		return 0;
	}
	return timing_push(w, task, t, h->sp, ra);
}

/* A thread arrives at a return address, or at the second instruction of a pair. */
static __always_inline void timing_return(struct timing_watch *w, struct task_struct *task, struct timed_thread *t,
					  const struct timing_hit *h, __u32 site)
{
	__u64 entry = h->sp - RETURN_BYTES;
	struct timing_open *o;

	if (w->mode == TIMING_PAIR) {
		o = timing_pop(t);
		if (o)
			timing_end(w, task, o, h, site);
		else
			__sync_fetch_and_add(&w->stray, 1);
		return;
	}
	timing_unwind(w, t, entry, false, TIMING_UNWOUND);
	if (timing_top(t) != entry) {
		__sync_fetch_and_add(&w->stray, 1);
		return;
	}
	o = timing_pop(t);
	if (!o)
		return;
	if (o->ra == h->pc)
		timing_end(w, task, o, h, site);
	else
		timing_lose(w, TIMING_UNWOUND);
}

/*
 * A thread arrives at a place in the loop, where a round ends and the next one begins, or outside
 * of it.
 */
static __always_inline struct timing_open *timing_round(struct timing_watch *w, struct task_struct *task,
							struct timed_thread *t, const struct timing_hit *h, __u32 site)
{
	bool inside = site < w->places;
	struct timing_open *o;
	__u64 value;

	if (h->begin <= w->until && w->started < w->watch.limit)
		__sync_fetch_and_add(&w->hits[site], 1);
	timing_unwind(w, t, h->sp, !inside, TIMING_LEFT);
	if (!inside) {
		if (h->begin > w->until)
			timing_finish(w);
		return 0;
	}
	value = argument(task, &w->value);
	if (timing_top(t) == h->sp) {
		o = timing_pop(t);
		if (o) {
			o->ra = value - o->ra;
			timing_end(w, task, o, h, site);
		}
	}
	if (!timing_admit(w, h->begin))
		return 0;
	return timing_push(w, task, t, h->sp, value);
}

static __always_inline struct timing_open *timing_arrive(struct timing_watch *w, struct task_struct *task,
							 struct timed_thread *t, const struct timing_hit *h, __u32 site)
{
	if (w->mode == TIMING_ROUNDS)
		return timing_round(w, task, t, h, site);
	if (site == 0)
		return timing_enter(w, task, t, h);
	timing_return(w, task, t, h, site);
	if (h->begin > w->until)
		timing_finish(w);
	return 0;
}

/* A thread is about to execute the instruction at a breakpoint. */
static __always_inline void timing_hit(struct task_struct *task, __u32 pid, const struct timing_hit *h)
{
	struct timing_watch *w = bpf_map_lookup_elem(&timing_watches, &pid);
	struct timed_thread *t;
	struct timing_open *o;
	__u32 site;
	__u64 ns;

	if (!w)
		return;
	site = watch_address(&w->watch, task, h->pc);
	if (site >= WATCH_ADDRESSES) {
		watch_account(&w->watch, h->begin);
		return;
	}
	if (w->mode == TIMING_CALLERS) {
		timing_caller(w, task, h, site);
		watch_account(&w->watch, h->begin);
		return;
	}
	t = timed_thread(w, task->pid);
	if (!t) {
		if (site == 0 && timing_admit(w, h->begin)) /* of rounds, those at the first place stand for all */
			timing_lose(w, TIMING_NO_SLOT);
		watch_account(&w->watch, h->begin);
		return;
	}
	o = timing_arrive(w, task, t, h, site);
	ns = watch_account(&w->watch, h->begin);
	for (__u32 i = 0; i < MAX_TIMED_DEPTH; i++) {
		if (i >= t->depth || &t->open[i] == o)
			break;
		t->open[i].inner++;
		t->open[i].inner_ns += ns;
	}
	if (o)
		o->time = bpf_ktime_get_ns();
}
