/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When a VM stops its Java threads: hotspot:safepoint__begin and safepoint__end, which agree with the VM's own log under
 * every collector. What it stops them for is the operation that vmops__begin names meanwhile, and whether gc__begin comes.
 */
#pragma once

#include "wait.bpf.h"

#define MAX_OPERATION 64 /* bytes of an operation's name */

struct pause {
	__u64 begin; /* ns, 0 if Java threads run */
	__u64 end;   /* ns, 0 if it is not known before safepoint__end */
	__u32 len;   /* of name */
	__u8 flags;  /* enum seen_flags */
	__u8 pad[3];
	__u8 name[MAX_OPERATION];
};

/* key: hotspot_process.slot */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct pause);
} pauses SEC(".maps");

/* key: attach cookie of hotspot:vmops__begin(name, length, mode) */
struct operation_site {
	struct operand name, len;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, struct operation_site);
} operation_sites SEC(".maps");

/* Where the pauses of this process's VM are noted, 0 if it is not attached. */
static __always_inline struct pause *this_pause(__u32 *slot)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);

	if (!vm)
		return 0;
	*slot = vm->slot;
	return bpf_map_lookup_elem(&pauses, slot);
}

static __always_inline void begin_pause(void)
{
	__u32 slot;
	struct pause *p = this_pause(&slot);
	struct epochs *e;

	if (!p)
		return;
	e = bpf_map_lookup_elem(&epochs, &slot);
	if (e) {
		__sync_fetch_and_add(&e->stops, 1);
		e->stopped = 1;
	}
	p->begin = bpf_ktime_get_ns();
	p->end = 0;
	p->len = p->flags = 0;
}

/* The VM takes down when the pause ended. It writes its log before safepoint__end. */
static __always_inline void note_end(void)
{
	__u32 slot;
	struct pause *p = this_pause(&slot);

	if (p && p->begin)
		p->end = bpf_ktime_get_ns();
}

/* The VM begins an operation; the one that has its name told is the first of a pause. */
static __always_inline void note_operation(__u32 site)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct operation_site *at = bpf_map_lookup_elem(&operation_sites, &site);
	__u32 slot, len;
	struct pause *p = this_pause(&slot);
	__u64 name;

	if (!p || !at || !p->begin || p->len)
		return;
	name = argument(task, &at->name);
	len = argument(task, &at->len);
	asm volatile("" : "+r"(len)); /* what is compared is what is used */
	if (len > MAX_OPERATION)
		len = MAX_OPERATION;
	if (!bpf_probe_read_user(p->name, len, (void *)name))
		p->len = len;
}

static __always_inline void note_collection(void)
{
	__u32 slot;
	struct pause *p = this_pause(&slot);
	struct epochs *e;

	if (!p)
		return;
	if (p->begin)
		p->flags |= SEEN_COLLECTION;
	e = bpf_map_lookup_elem(&epochs, &slot);
	if (e)
		__sync_fetch_and_add(&e->collections, 1);
}

/* Notes a pause that ends here. */
static __always_inline bool see_pause(__u32 probe)
{
	__u64 now = bpf_ktime_get_ns(), begin;
	__u32 slot, every, len;
	struct pause *p = this_pause(&slot);
	struct scratch *s;
	struct epochs *e;

	if (!p || !p->begin)
		return false;
	e = bpf_map_lookup_elem(&epochs, &slot);
	if (e)
		e->stopped = 0;
	begin = p->begin;
	if (p->end > begin)
		now = p->end;
	p->begin = 0;
	if (!chosen(bpf_get_current_pid_tgid() >> 32))
		return false;
	every = told(probe);
	if (!every)
		return false;
	s = begin_observation(OBSERVED_PAUSE, probe, every);
	if (!s)
		return false;
	s->watch.bare = 1;
	s->seen.o.flags = p->flags;
	s->seen.o.count = 1;
	s->seen.o.values[0] = now - begin;
	len = p->len;
	if (len > MAX_OPERATION)
		len = 0;
	bpf_probe_read_kernel(s->seen.text, len, p->name);
	s->seen.o.text_len = len;
	return true;
}
