/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Calls that the CPU itself records, in one of two ways:
 *
 *   branch records   (LBR, BRBE, AMD's LbrExtV2) at a tick, the last 32 calls and indirect jumps of
 *                    the current thread, in order. Jumps count only if HotSpot's vtable or itable
 *                    stubs make them: their target is the callee of the call of the stub
 *   retired calls    every Nth call raises an event, when the call instruction has been executed:
 *                    the return address is on top of the stack
 *
 * For perf_event programs: the kernel runs no other one on a CPU while one runs there
 * (bpf_prog_active).
 */
#pragma once

#include "record/call.h"
#include "walk/codecache.bpf.h"
#include "kernel/maps.bpf.h"
#include "kernel/ringwakeup.bpf.h"

#include <linux/perf_event.h>

#define MAX_BRANCHES 32 /* the most that any CPU keeps */

/* What the engine did, and what it cost. */
struct branch_cost {
	__u64 samples; /* of the CPU's event */
	__u64 ns;      /* in the programs */
	__u64 empty;   /* samples without a call of user space: none was recorded, or only others */
	__u64 skewed;  /* retired calls whose return address was no longer on the stack: the CPU had gone on */
	__u64 stubs;   /* calls of a vtable or itable stub whose callee the next record does not show */
	__u64 untyped; /* records of a call or of a jump: the kernel did not report the kind */
};

/* How much to take, from the next sample on. */
struct branch_rate {
	__u32 samples; /* the latest so many calls of a record; 0: none */
	__u32 pad;
};

struct branch_records {
	struct perf_branch_entry entries[MAX_BRANCHES]; /* the latest first */
	/*
	 * The call of a stub that the next record belongs to, and the stub's blob; 0: none. It is
	 * here because before 6.8 the verifier takes what a callback's context has at first for
	 * what it always has.
	 */
	__u64 from, to, stub;
	__u32 taken; /* of the calls; here for the same reason */
	__u32 pad;
};

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct branch_cost);
} branch_costs SEC(".maps");

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct branch_rate);
} branch_rates SEC(".maps");

/* key: 0; too large for the stack */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct branch_records);
} branch_buffers SEC(".maps");

static __always_inline bool is_user_code(__u64 pc)
{
	return pc >= 4096 && !(pc >> 56);
}

/* A number that no other sample of this agent has. */
static __always_inline __u64 branch_burst(const struct branch_cost *cost)
{
	return (__u64)bpf_get_smp_processor_id() << 48 | (cost->samples & ((1ull << 48) - 1));
}

static __always_inline void branch_deliver(struct task_struct *task, __u64 now, __u64 burst, __u64 callee, __u64 caller,
					   __u32 stride)
{
	struct call *c;

	count(CALLS_ATTEMPTED, 1);
	c = bpf_ringbuf_reserve(&nmi_events, sizeof(*c), 0);
	if (!c) {
		count(CALLS_DROPPED_RING_FULL, 1);
		return;
	}
	fill_header(&c->header, task, EVENT_CALL, now);
	c->callee = callee;
	c->caller = caller;
	c->burst = burst;
	c->class_epoch = c->attachment = 0; /* addresses are named by what is there */
	c->engine = ENGINE_BRANCH;
	c->pad[0] = c->pad[1] = c->pad[2] = 0;
	c->callee_depth = c->caller_depth = 0;
	c->stride = stride;
	c->made = c->ticks = 0;
	c->spent = 0;
	bpf_ringbuf_submit(c, nmi_wakeup_flags());
	count(CALLS_DELIVERED, 1);
}

struct branch_walk {
	struct task_struct *task;
	struct branch_records *records;
	struct branch_cost *cost;
	__u64 now, burst;
	__u32 count; /* of records that are walked */
	__u32 calls; /* that are wanted, less those that were met */
	__u32 pid;
};

static __always_inline bool is_call(const struct perf_branch_entry *e)
{
	return e->type == PERF_BR_CALL || e->type == PERF_BR_IND_CALL || e->type == PERF_BR_COND_CALL;
}

static __always_inline bool in_user_code(const struct perf_branch_entry *e)
{
	return is_user_code(e->from) && is_user_code(e->to); /* else it is a system call, or nothing */
}

/*
 * bpf_loop callback: counts records, from the latest on, until they have as many calls as are
 * wanted.
 */
static long branch_count(__u64 i, struct branch_walk *w)
{
	if (i >= MAX_BRANCHES || !w->calls)
		return 1;
	w->count = (__u32)i + 1;
	if (is_call(&w->records->entries[i]))
		w->calls--;
	return 0;
}

static __always_inline void branch_take(struct branch_walk *w, __u64 to, __u64 from)
{
	branch_deliver(w->task, w->now, w->burst, to, from, w->records->taken ? 1 : 0);
	w->records->taken++;
}

/* The blob around pc if that is of vtable and itable stubs, else 0. */
static __noinline __u64 stub_at(__u32 pid, __u64 pc)
{
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	__u64 blob;

	if (!vm || !in_code_cache(vm, pc))
		return 0;
	blob = blob_at(vm, pc);
	return blob && vm->name_vtable && read_word(blob + vm->blob_name) == vm->name_vtable ? blob : 0;
}

/* A stub's call that no jump belongs to leads to the stub, as far as anybody knows. */
static __always_inline void branch_give_up(struct branch_walk *w)
{
	struct branch_records *r = w->records;

	if (!r->stub)
		return;
	branch_take(w, r->to, r->from);
	r->stub = 0;
	__sync_fetch_and_add(&w->cost->stubs, 1);
}

/* bpf_loop callback: the oldest record that is left. */
static long branch_step(__u64 i, struct branch_walk *w)
{
	__u32 at = w->count - 1 - (__u32)i;
	struct branch_records *r = w->records;
	const struct perf_branch_entry *e;

	if (at >= MAX_BRANCHES)
		return 1; /* never: for the verifier */
	e = &r->entries[at];
	if (!in_user_code(e))
		return 0;
	if (is_call(e)) {
		branch_give_up(w);
		r->stub = stub_at(w->pid, e->to);
		if (r->stub) {
			r->from = e->from;
			r->to = e->to;
		} else {
			branch_take(w, e->to, e->from);
		}
	} else if (e->type == PERF_BR_UNKNOWN) {
		__sync_fetch_and_add(&w->cost->untyped, 1);
	} else if (r->stub && stub_at(w->pid, e->from) == r->stub) {
		branch_take(w, e->to, r->from);
		r->stub = 0;
	}
	return 0;
}

/* Delivers the latest calls of n records, in the order in which they were made. */
static __always_inline void branch_stack_sample(struct task_struct *task, struct branch_records *r, __u32 n,
						struct branch_cost *cost, __u64 now)
{
	__u32 zero = 0;
	struct branch_rate *rate = bpf_map_lookup_elem(&branch_rates, &zero);
	struct branch_walk w = {.task = task, .records = r, .now = now, .burst = branch_burst(cost), .cost = cost,
				.pid = bpf_get_current_pid_tgid() >> 32};

	r->stub = 0;
	r->taken = 0;
	w.calls = rate ? rate->samples : MAX_BRANCHES;
	if (n > MAX_BRANCHES)
		n = MAX_BRANCHES;
	bpf_loop(n, branch_count, &w, 0);
	bpf_loop(w.count, branch_step, &w, 0);
	branch_give_up(&w);
	if (!r->taken)
		__sync_fetch_and_add(&cost->empty, 1);
}

#define RETIRED_SKID 64 /* bytes of the callee that the CPU may be ahead */

/*
 * Where the call before ra went if execution is at pc now; 0 if there is no call, or it leads
 * elsewhere.
 */
static __always_inline __u64 called_before(__u64 ra, __u64 pc)
{
	__u8 b[8] = {};
	__s32 distance;

	if (bpf_probe_read_user(b, 7, (void *)(ra - 7)))
		return 0;
	__builtin_memcpy(&distance, &b[3], sizeof(distance));
	if (b[2] == 0xe8 && pc - (ra + (__s64)distance) < RETIRED_SKID) /* call rel32 */
		return ra + (__s64)distance;
	/*
	 * call [r + s + d32], [r + d32], [r + s + d8], [r + d8], r or [r], by where the instruction
	 * begins
	 */
	for (int i = 0; i < 6; i++)
		if (i != 2 && b[i] == 0xff && (b[i + 1] & 0x38) == 0x10)
			return pc;
	return 0;
}

/*
 * Delivers a call that was just retired: execution stands at pc, and ra is on top of the stack. If
 * the CPU went on before it raised the event, pc is further inside the callee: a direct call's
 * instruction has the address at which that begins. If it has changed the stack by then, what is on
 * top follows no call.
 */
static __always_inline void branch_retired_call(struct task_struct *task, __u64 pc, __u64 ra, __u32 period,
						struct branch_cost *cost, __u64 now)
{
	__u64 callee;

	if (!is_user_code(pc) || !is_user_code(ra)) {
		__sync_fetch_and_add(&cost->empty, 1);
		return;
	}
	callee = called_before(ra, pc);
	if (!callee) {
		__sync_fetch_and_add(&cost->skewed, 1);
		return;
	}
	branch_deliver(task, now, branch_burst(cost), callee, ra - 1, period);
}

/* What both begin with; 0 if the sample is of nobody who was chosen. */
static __always_inline struct branch_cost *branch_begin(__u32 pid)
{
	__u32 zero = 0;
	struct branch_cost *cost;

	if (!pid || !chosen(pid))
		return 0;
	cost = bpf_map_lookup_elem(&branch_costs, &zero);
	if (cost)
		__sync_fetch_and_add(&cost->samples, 1);
	count(CALL_HITS, 1);
	return cost;
}

static __always_inline void branch_end(struct branch_cost *cost, __u64 begin)
{
	__u64 ns = bpf_ktime_get_ns() - begin;

	__sync_fetch_and_add(&cost->ns, ns);
	count(NS_CALLS, ns);
}
