/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Virtual threads that wait without a thread of the kernel: which ones, since when, and how many
 * there were. See virtualthread.bpf.h.
 */
#pragma once

#include "event/observe.bpf.h"

#define MAX_UNMOUNTED 65536

/* Numbers of threads are not used again, addresses of their objects change. */
struct virtual_thread {
	__u32 serial; /* of the VM */
	__u32 pad;
	__u64 id; /* Thread.threadId() */
};

enum unmounted_kind {
	UNMOUNTED_PARKED = 1,
	UNMOUNTED_MONITOR = 2,
};

struct unmounted_wait {
	__u64 begin; /* ns */
	__u32 every;
	__u32 probe; /* at which the wait began */
	__u32 turn;  /* turn_of() it then */
	__u32 kind;  /* enum unmounted_kind */
};

/* Of virtual threads that wait. User space deletes those that were not seen to go on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_UNMOUNTED);
	__type(key, struct virtual_thread);
	__type(value, struct unmounted_wait);
} unmounted_waits SEC(".maps");

/* Waits of one VM's virtual threads. */
struct virtual_count {
	__u64 begun;   /* for an object: those that were drawn, and what they stand for */
	__u64 ended;   /* of these, the ones whose end was seen; the others still wait, or their end was not seen */
	__u64 others;  /* for none: sleep, I/O, Thread.yield */
	__u64 unknown; /* the thread could not be read */
};

/* key: serial of the VM */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_ATTACHED);
	__type(key, __u32);
	__type(value, struct virtual_count);
} virtual_counts SEC(".maps");

static __always_inline struct virtual_count *virtual_count_of(__u32 serial)
{
	struct virtual_count *c = bpf_map_lookup_elem(&virtual_counts, &serial), none = {};

	if (c)
		return c;
	bpf_map_update_elem(&virtual_counts, &serial, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&virtual_counts, &serial);
}

/*
 * The virtual thread that runs on a JavaThread, as key and by the address of its object; 0 if that
 * is not known.
 */
static __always_inline __u64 mounted_on(const struct hotspot_process *vm, const struct hotspot_heap *h, __u64 thread,
					struct virtual_thread *key)
{
	__u64 object;

	if (!(h->flags & HEAP_MOUNTED) || !thread || read_word(thread) != vm->java_thread_vtable)
		return 0;
	object = native_referent(h, thread + h->thread_current, h->flags & HEAP_THREAD_HANDLE);
	if (!object)
		return 0;
	key->serial = vm->serial;
	key->id = read_word(object + h->thread_id);
	return key->id ? object : 0;
}

/*
 * A virtual thread that was to give up its carrier has kept it, and waits as any thread: its wait
 * is not one of these.
 */
static __always_inline void forget_kept(const struct hotspot_process *vm, const struct hotspot_heap *h, __u64 thread)
{
	struct virtual_thread key = {};
	struct virtual_count *c;
	struct unmounted_wait *f;

	if (!mounted_on(vm, h, thread, &key))
		return;
	f = bpf_map_lookup_elem(&unmounted_waits, &key);
	if (!f)
		return;
	c = virtual_count_of(h->serial);
	if (c)
		__sync_fetch_and_add(&c->begun, -(__u64)f->every);
	bpf_map_delete_elem(&unmounted_waits, &key);
}
