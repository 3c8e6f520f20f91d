/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waits of virtual threads, for which they give up their carrier, the thread of the kernel that they run on: the VM copies their frames to
 * the heap (freeze), and back when they go on, on whatever carrier (thaw). So a wait is known by the virtual thread's number, and its stack
 * is recorded when it begins, while it is still on the carrier's stack: OBSERVED_FREEZE. OBSERVED_THAW says how long it was.
 *
 *   parked           freeze, of LockSupport.park, Thread.sleep and Thread.yield; ends at Continuation::prepare_thaw
 *   for a monitor    JDK 24 and later: freeze_preempt, within the function that enters monitors (wait.bpf.h). If the VM could copy the
 *                    frames, it calls ObjectMonitor::vthread_monitor_enter. The thread may be mounted and fail to get the monitor, and
 *                    then waits on. Once it has it, the VM calls ThawBase::handle_preempted_continuation.
 */
#pragma once

#include "wait.bpf.h"

#define MAX_FROZEN 65536

/* Numbers of threads are not used again, addresses of their objects change. */
struct virtual_thread {
	__u32 serial; /* of the VM */
	__u32 pad;
	__u64 id; /* Thread.threadId() */
};

enum frozen_kind {
	FROZEN_PARKED = 1,
	FROZEN_MONITOR = 2,
};

struct frozen {
	__u64 begin; /* ns */
	__u32 every;
	__u32 probe; /* at which the wait began */
	__u32 turn;  /* turn_of() it then */
	__u32 kind;  /* enum frozen_kind */
};

/* Of virtual threads that wait. User space deletes those that were not seen to go on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FROZEN);
	__type(key, struct virtual_thread);
	__type(value, struct frozen);
} frozen_threads SEC(".maps");

/* Waits of one VM's virtual threads. */
struct virtual_count {
	__u64 waits;   /* for an object, whether they were drawn or not */
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

/* The virtual thread that runs on a JavaThread, as key and by the address of its object; 0 if that is not known. */
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

/* Begins the record of a stack whose wait ends later. */
static __always_inline struct scratch *begin_freeze(__u32 probe, __u32 every, const struct virtual_thread *key, __u64 begin)
{
	struct scratch *s = begin_observation(OBSERVED_FREEZE, probe, every);

	if (!s)
		return 0;
	s->seen.o.count = 2;
	s->seen.o.values[0] = key->id;
	s->seen.o.values[1] = begin;
	return s;
}

static __always_inline bool note_frozen(const struct virtual_thread *key, const struct frozen *f)
{
	if (!bpf_map_update_elem(&frozen_threads, key, f, BPF_ANY))
		return true;
	drop_observation();
	return false;
}

/*
 * A virtual thread is about to give up its carrier; thread is the JavaThread. Some keep it, as they have native frames or, up to JDK 23, a
 * monitor: then its thread of the kernel is parked next, and this record has no end.
 */
static __always_inline bool see_freeze(__u32 probe, __u64 thread)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, every;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct virtual_thread key = {};
	struct frozen f = {.kind = FROZEN_PARKED, .probe = probe};
	struct virtual_count *c;
	struct scratch *s;
	__u64 object, blocker;

	if (!chosen(pid))
		return false;
	every = drawn_weight(probe);
	if (!attached(pid))
		return false;
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (!h)
		return false;
	c = virtual_count_of(h->serial);
	object = mounted_on(vm, h, thread, &key);
	if (!object) {
		if (c)
			__sync_fetch_and_add(&c->unknown, 1);
		return false;
	}
	blocker = h->flags & HEAP_PARK_BLOCKER ? referent(h, object + h->park_blocker) : 0;
	if (c)
		__sync_fetch_and_add(blocker ? &c->waits : &c->others, 1);
	if (!blocker && every)
		count_free(probe); /* or the budget would have no room for the others */
	if (!blocker || !every) {
		bpf_map_delete_elem(&frozen_threads, &key);
		return false;
	}
	f.begin = bpf_ktime_get_ns();
	f.every = every;
	f.turn = turn_of(probe);
	s = begin_freeze(probe, every, &key, f.begin);
	if (!s)
		return false;
	see_object(s, vm, pid, blocker, 0);
	if (note_frozen(&key, &f))
		return true;
	end_observation(s);
	return false;
}

/* The same within the function that enters a monitor: the wait has begun there. */
static __always_inline bool see_preemption(__u32 probe, __u64 thread)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct virtual_thread key = {};
	struct scratch *s;
	struct lock_wait *w = this_wait(&entering);

	if (!w)
		return false;
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (!h || !mounted_on(vm, h, thread, &key))
		return false;
	s = begin_freeze(probe, w->every, &key, w->begin);
	if (!s)
		return false;
	s->seen.o.flags = SEEN_CONTENDED;
	if (w->begun & BEGUN_HANDLE)
		see_object(s, vm, pid, read_word(w->monitor), 0);
	else
		see_object(s, vm, pid, native_referent(h, w->monitor + h->monitor_object, h->flags & HEAP_MONITOR_HANDLE), 0);
	return true;
}

/* The virtual thread has left its carrier, and waits for the monitor. */
static __always_inline void note_preempted(__u32 probe, __u64 thread)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, tid = (__u32)bpf_get_current_pid_tgid();
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct virtual_thread key = {};
	struct frozen f = {.kind = FROZEN_MONITOR, .probe = probe};
	struct lock_wait *w = this_wait(&entering);
	struct virtual_count *c;

	if (!w)
		return;
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (h && mounted_on(vm, h, thread, &key)) {
		f.begin = w->begin;
		f.every = w->every;
		f.turn = turn_of(probe);
		c = virtual_count_of(h->serial);
		if (c)
			__sync_fetch_and_add(&c->waits, w->every);
		note_frozen(&key, &f);
	}
	forget_wait(&entering, tid); /* the carrier goes on with others */
}

/* A virtual thread goes on; thread is the JavaThread that is its carrier now. */
static __always_inline bool see_thaw(__u32 probe, __u32 kind, __u64 thread)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct virtual_thread key = {};
	struct frozen *f;
	struct scratch *s = 0;

	if (!chosen(pid))
		return false;
	count(PROBE_HITS, 1);
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (!h || !mounted_on(vm, h, thread, &key))
		return false;
	f = bpf_map_lookup_elem(&frozen_threads, &key);
	if (!f || f->kind != kind)
		return false;
	if (f->turn == turn_of(probe))
		s = begin_observation(OBSERVED_THAW, probe, f->every);
	if (s) {
		s->watch.bare = 1;
		s->seen.o.count = 3;
		s->seen.o.values[0] = key.id;
		s->seen.o.values[1] = f->begin;
		s->seen.o.values[2] = now - f->begin;
	}
	bpf_map_delete_elem(&frozen_threads, &key);
	return s;
}
