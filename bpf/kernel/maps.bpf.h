/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps that several objects share; the loader creates each once. */
#pragma once

#include "record/counter.h"
#include "record/event.h"
#include "record/hotspot.h"
#include "kernel/kernel.h"

/* The one ordered stream: samples and code changes together. The size is set at load. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} events SEC(".maps");

/*
 * The same for programs of non-maskable interrupts (branch records, counters of the CPU), which may
 * interrupt one that has the lock of the other ring; kernels 6.15 to 6.17 can stall there. User
 * space merges both by event_header.time.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16); /* one page; the size is set at load */
} nmi_events SEC(".maps");

/* key: enum counter */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* key: pid of an attached VM */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct hotspot_process);
} processes SEC(".maps");

/* key: hotspot_process.slot */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct epochs);
} epochs SEC(".maps");

#define MAX_CHOSEN 8192 /* processes */

/* key: chosen pid, its children included; asked only if filter_by_pid */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CHOSEN);
	__type(key, __u32);
	__type(value, __u8);
} pids SEC(".maps");

/*
 * key: pid of a chosen process that has ended lately, value: its start. Its threads are freed
 * later.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CHOSEN);
	__type(key, __u32);
	__type(value, __u64);
} ended_pids SEC(".maps");

const volatile bool filter_by_pid = false;

/* Atomic although per CPU: uprobe programs are preempted, and ticks nest into them. */
static __always_inline void count(__u32 which, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&counters, &which);

	if (v)
		__sync_fetch_and_add(v, n);
}

#ifdef TICK_PROGRAM
struct tick_counts {
	__u64 n[TICK_COUNTERS];
};

/* key: CPU; what its ticks counted. The size is set at load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* values begin at a page, so each has two cache lines of its own */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tick_counts);
} tick_counts SEC(".maps");

/* Ticks do not nest into each other on a CPU: their program counts without atomics. */
static __always_inline void count_tick(__u32 which, __u64 n)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tick_counts *c = bpf_map_lookup_elem(&tick_counts, &cpu);

	if (c)
		c->n[which] += n;
	else
		count(which, n);
}

/* What all walks count. */
#define count_walk count_tick
#else
#define count_walk count
#endif

static __always_inline bool chosen(__u32 pid)
{
	return !filter_by_pid || bpf_map_lookup_elem(&pids, &pid);
}

/* One step of a hash. */
static __always_inline __u64 mix(__u64 h, __u64 v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

/*
 * What identifies the current process; every event begins with it. The kernel vouches for task: it
 * is read directly.
 */
static __always_inline void fill_header(struct event_header *h, struct task_struct *task, __u8 kind, __u64 now)
{
	struct task_struct *leader = task->group_leader;

	h->time = now;
	h->pid = task->tgid;
	h->tid = task->pid;
	h->start = leader->start_boottime;
	h->exec = (__u32)leader->self_exec_id;
	h->kind = kind;
	h->stopped = 0;
	h->left_out = 0;
}

struct task_struct___switches {
	unsigned long nvcsw, nivcsw; /* times that the task gave up the CPU, and lost it */
} __attribute__((preserve_access_index));

/* While this stays the same, the current task had a CPU all the time. */
static __always_inline __u64 switches_of(struct task_struct *task)
{
	struct task_struct___switches *t = (struct task_struct___switches *)task;

	return t->nvcsw + t->nivcsw;
}

/* While this stays the same, the current task did not sleep. */
static __always_inline __u64 sleeps_of(struct task_struct *task)
{
	return ((struct task_struct___switches *)task)->nvcsw;
}
