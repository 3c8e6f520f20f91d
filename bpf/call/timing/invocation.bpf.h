/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What breakpoints of whole invocations do: see invocation.bpf.c. */
#pragma once

#include "call/timing/openinvocation.bpf.h"
#include "kernel/maps.bpf.h"

#define MAX_FOLLOWED 16		/* processes */
#define FOLLOWED_ADDRESSES 4	/* debug registers of x86-64; those that are not needed are left to debuggers */

/* The code of the method in a process. User space writes it before it sets breakpoints. */
struct followed {
	__u64 start_ticks; /* of the process, in 10 ms: guards against a reused pid */
	__u64 addresses[FOLLOWED_ADDRESSES]; /* unused ones are 0 */
	__u32 entries;	  /* the first addresses, as many, are entries; the others are return instructions */
	__u32 generation; /* of the breakpoints: their clocks begin anew with each */
};

/* What was seen in a process. */
struct invocation_counts {
	__u64 hits; /* runs of the program */
	__u64 ns;   /* in it */
	__u64 entered;
	__u64 returned;
	__u64 unwound; /* went away without a return that was seen */
	__u64 nested;  /* entered within another one of the thread */
	__u64 stray;   /* returns of invocations that were not seen to begin */
	__u64 refused; /* entered, but there was no room for the thread */
	__u64 lost;    /* records for which the ring had no room */
	__u64 took;    /* ns, all that returned */
};

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FOLLOWED);
	__type(key, __u32);
	__type(value, struct followed);
} followed_code SEC(".maps");

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FOLLOWED);
	__type(key, __u32);
	__type(value, struct invocation_counts);
} invocation_sums SEC(".maps");

/* Invocations that took less, in ns, have no record. */
__u64 least_length = 0;

struct sched_info___queued {
	unsigned long long run_delay; /* ns that the task waited for a CPU, with CONFIG_SCHED_INFO */
} __attribute__((preserve_access_index));

struct task_struct___queued {
	struct sched_info___queued sched_info;
} __attribute__((preserve_access_index));

static __always_inline __u64 queued(struct task_struct *task)
{
	struct task_struct___queued *t = (struct task_struct___queued *)task;

	return bpf_core_field_exists(t->sched_info.run_delay) ? t->sched_info.run_delay : 0;
}

/* The outermost invocation of a thread is over. */
static __always_inline void invocation_over(struct invocation_counts *c, const struct followed *f,
					    struct open_invocation *in, __u64 ran, struct task_struct *task, __u64 now,
					    __u8 end)
{
	__u64 begun = in->time;
	struct invocation r = {};

	in->time = 0;
	if (end == INVOCATION_RETURNED) {
		__sync_fetch_and_add(&c->returned, 1);
		__sync_fetch_and_add(&c->took, now - begun);
	} else {
		__sync_fetch_and_add(&c->unwound, 1);
	}
	if (now - begun < least_length)
		return;
	fill_header(&r.header, task, EVENT_INVOCATION, now);
	r.begun = begun;
	r.sp = in->sp;
	if (in->generation == f->generation && in->ran && ran >= in->ran) {
		r.ran = ran - in->ran;
		r.known = 1;
	}
	r.waited = queued(task) - in->waited;
	r.end = end;
	if (bpf_ringbuf_output(&events, &r, sizeof(r), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&c->lost, 1);
}

static __always_inline struct open_invocation *open_invocation_of(struct task_struct *task, __u32 pid)
{
	__u32 tid = task->pid;
	struct open_invocation *in = bpf_map_lookup_elem(&open_invocations, &tid);

	if (in && in->born != task->start_boottime) { /* the end of another thread was not noticed */
		in->time = 0;
		in->born = task->start_boottime;
		in->pid = pid;
	}
	if (!in) {
		struct open_invocation fresh = {.born = task->start_boottime, .pid = pid};

		bpf_map_update_elem(&open_invocations, &tid, &fresh, BPF_NOEXIST);
		in = bpf_map_lookup_elem(&open_invocations, &tid);
	}
	return in;
}

/*
 * The return address of code that is being entered; 0 where it is in a register, and perhaps
 * nowhere else later on.
 */
static __always_inline __u64 return_address(__u64 sp)
{
	__u64 back = 0;

#if defined(__TARGET_ARCH_x86)
	if (bpf_probe_read_user(&back, sizeof(back), (void *)sp))
		return 0;
#endif
	return back;
}

/*
 * Whether a remembered invocation is over when the code is entered. It is if this entry is as far
 * out, or further. If it is further in, it may be a nested one; but where the return address lay,
 * another one has come since if the invocation ended without a return that was seen and its caller,
 * or another method in the same place, made a call. Where the VM deoptimises the caller, it
 * replaces that address as well: then a nested entry ends an invocation too early.
 */
static __always_inline bool is_over(const struct open_invocation *in, __u64 sp)
{
	return sp >= in->sp || (in->back && return_address(in->sp) != in->back);
}

/*
 * ran is for how long the thread was on a CPU, by the clock of its breakpoints; 0 if that is not
 * known.
 */
static __always_inline void invocation_arrive(struct invocation_counts *c, const struct followed *f, __u64 ran,
					      struct task_struct *task, __u32 pid, bool entry, __u64 sp, __u64 now)
{
	struct open_invocation *in = open_invocation_of(task, pid);

	if (!in) {
		__sync_fetch_and_add(&c->refused, 1);
		return;
	}
	if (!entry) {
		if (!in->time)
			__sync_fetch_and_add(&c->stray, 1);
		else if (sp >= in->sp) /* below it is a nested one */
			invocation_over(c, f, in, ran, task, now,
					sp == in->sp ? INVOCATION_RETURNED : INVOCATION_UNWOUND);
		return;
	}
	if (in->time && !is_over(in, sp)) {
		__sync_fetch_and_add(&c->nested, 1);
		return;
	}
	if (in->time)
		invocation_over(c, f, in, ran, task, now, INVOCATION_UNWOUND);
	__sync_fetch_and_add(&c->entered, 1);
	in->sp = sp;
	in->back = return_address(sp);
	in->ran = ran;
	in->waited = queued(task);
	in->generation = f->generation;
	in->time = now;
}

/* A thread is about to execute the instruction at a breakpoint. */
static __always_inline void invocation_hit(__u64 pc, __u64 sp, __u64 ran, __u64 now)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct followed *f = bpf_map_lookup_elem(&followed_code, &pid);
	struct invocation_counts *c = bpf_map_lookup_elem(&invocation_sums, &pid);
	__u32 at = FOLLOWED_ADDRESSES;

	if (!f || !c)
		return;
	if (f->start_ticks == task->group_leader->start_boottime / NS_PER_START_TICK) {
		for (__u32 i = 0; i < FOLLOWED_ADDRESSES; i++) {
			if (f->addresses[i] == pc && at == FOLLOWED_ADDRESSES)
				at = i;
		}
	}
	if (at < FOLLOWED_ADDRESSES)
		invocation_arrive(c, f, ran, task, pid, at < f->entries, sp, now);
	__sync_fetch_and_add(&c->hits, 1);
	__sync_fetch_and_add(&c->ns, bpf_ktime_get_ns() - now);
}
