/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When a VM stops its Java threads: hs_private:safepoint__begin and safepoint__end, which agree
 * with the VM's own log under every collector. Shortly before each the VM reads its clock, for the
 * log, too; a thread that loses its CPU in between is not stopped any later, so the VM's own
 * reading is used where its address is known. Meanwhile three probes give the cause of the pause:
 * vmops__begin the operation, gc__begin that garbage is collected, and mem__pool__gc__begin the
 * collector.
 */
#pragma once

#include "lock/lockwait.bpf.h"

struct pause {
	__u64 begin; /* ns, 0 if Java threads run */
	__u8 flags;  /* enum seen_flags */
	__u8 pad[7];
	struct pause_cause cause;
};

/* key: hotspot_process.slot */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct pause);
} pauses SEC(".maps");

/* Where a probe has a name and its length in bytes. key: attach cookie. */
struct name_site {
	struct operand name, len;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, struct name_site);
} name_sites SEC(".maps");

/*
 * Where the VM keeps the time (CLOCK_MONOTONIC, ns) of the event that a probe of safepoints
 * reports: bytes from the probe, 0 if unknown. key: attach cookie.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, __s64);
} clock_sites SEC(".maps");

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

/* ns from the VM's reading of its clock until its probe is hit: it may lose the CPU meanwhile */
#define MOST_DELAY 1000000000ull

/*
 * The time of the VM's event that a probe reports, by the VM's own clock variable. Returns the
 * present time if the probe has no such variable, or if its value is not after the given time or is
 * too old.
 */
static __always_inline __u64 vm_time(const struct registers *r, __u32 probe, __u64 after)
{
	__s64 *from = bpf_map_lookup_elem(&clock_sites, &probe);
	__u64 now = bpf_ktime_get_ns(), at;

	if (!from || !*from)
		return now;
	at = read_word(probed_at(r) + *from);
	return at > after && at <= now && now - at < MOST_DELAY ? at : now;
}

static __always_inline void begin_pause(const struct registers *r, __u32 probe)
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
	p->begin = vm_time(r, probe, 0);
	p->flags = 0;
	__builtin_memset(&p->cause, 0, sizeof(p->cause));
}

/* Reads the name that a probe has, unless one is there already. */
static __always_inline void read_name(__u32 probe, __u8 name[MAX_CAUSE])
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct name_site *at = bpf_map_lookup_elem(&name_sites, &probe);
	__u32 len;
	__u64 from;

	if (!at || name[0])
		return;
	from = argument(task, &at->name);
	len = argument(task, &at->len);
	asm volatile("" : "+r"(len)); /* what is compared is what is used */
	if (len > MAX_CAUSE)
		len = MAX_CAUSE;
	bpf_probe_read_user(name, len, (void *)from);
}

/* The VM begins an operation. The record of a pause has the name of the first one. */
static __always_inline void note_operation(__u32 probe)
{
	__u32 slot;
	struct pause *p = this_pause(&slot);

	if (p && p->begin)
		read_name(probe, p->cause.operation);
}

/*
 * A memory manager begins to collect garbage in a pool; it may do so while Java threads run, too.
 */
static __always_inline void note_manager(__u32 probe)
{
	__u32 slot;
	struct pause *p = this_pause(&slot);

	if (!p || !p->begin)
		return;
	p->flags |= SEEN_COLLECTION;
	read_name(probe, p->cause.collector);
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
static __always_inline bool see_pause(const struct registers *r, __u32 probe)
{
	__u64 begin, end;
	__u32 slot, every;
	struct pause *p = this_pause(&slot);
	struct scratch *s;
	struct epochs *e;

	if (!p || !p->begin)
		return false;
	e = bpf_map_lookup_elem(&epochs, &slot);
	if (e)
		e->stopped = 0;
	begin = p->begin;
	end = vm_time(r, probe, begin);
	p->begin = 0;
	if (!chosen_at(bpf_get_current_pid_tgid() >> 32, probe))
		return false;
	every = drawn_weight(probe);
	if (!every)
		return false;
	s = begin_observation(OBSERVED_PAUSE, probe, every);
	if (!s)
		return false;
	s->watch.bare = 1;
	s->seen.o.flags = p->flags;
	s->seen.o.count = 1;
	s->seen.o.values[0] = end - begin;
	__builtin_memcpy(s->seen.text, &p->cause, sizeof(p->cause));
	s->seen.o.text_len = sizeof(p->cause);
	return true;
}
