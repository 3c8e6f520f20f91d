/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waits of virtual threads, for which they give up their carrier, the thread of the kernel that
 * they run on: the VM copies their frames to the heap (freeze), and back when they go on, on
 * whatever carrier (thaw). So a wait is known by the virtual thread's number, and its stack is
 * recorded when it begins, while it is still on the carrier's stack: OBSERVED_FREEZE. OBSERVED_THAW
 * says how long it was.
 *
 *   parked           freeze, of LockSupport.park, Thread.sleep and Thread.yield; ends at
 *                    Continuation::prepare_thaw
 *   for a monitor    JDK 24 and later: freeze_preempt, within the function that enters monitors
 *                    (lockwait.bpf.h). If the VM could copy the frames, it calls
 *                    ObjectMonitor::vthread_monitor_enter. The thread may be mounted and fail to
 *                    get the monitor, and then waits on. Once it has it, the VM calls
 *                    ThawBase::handle_preempted_continuation.
 */
#pragma once

#include "lock/lockwait.bpf.h"

/* Begins the record of a stack whose wait ends later. */
static __always_inline struct scratch *begin_freeze(__u32 probe, __u32 every, const struct virtual_thread *key,
						    __u64 begin)
{
	struct scratch *s = begin_observation(OBSERVED_FREEZE, probe, every);

	if (!s)
		return 0;
	s->seen.o.count = 2;
	s->seen.o.values[0] = key->id;
	s->seen.o.values[1] = begin;
	return s;
}

static __always_inline bool note_unmounted(const struct virtual_thread *key, const struct unmounted_wait *f)
{
	if (!bpf_map_update_elem(&unmounted_waits, key, f, BPF_ANY))
		return true;
	drop_observation();
	return false;
}

/*
 * A virtual thread is about to give up its carrier; thread is the JavaThread. Some keep it, as they
 * have native frames or, up to JDK 23, a monitor: then its thread of the kernel is parked next, and
 * this record has no end.
 */
static __always_inline bool see_freeze(__u32 probe, __u64 thread)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, every;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct virtual_thread key = {};
	struct unmounted_wait f = {.kind = UNMOUNTED_PARKED, .probe = probe};
	struct virtual_count *c;
	struct scratch *s;
	__u64 object, blocker;

	if (!observed_at(pid, probe))
		return false;
	every = drawn_weight(probe);
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
	if (c && !blocker)
		__sync_fetch_and_add(&c->others, 1);
	if (c && blocker)
		__sync_fetch_and_add(&c->begun, every);
	if (!blocker && every)
		count_free(probe); /* or the budget would have no room for the others */
	if (!blocker || !every) {
		bpf_map_delete_elem(&unmounted_waits, &key);
		return false;
	}
	f.begin = bpf_ktime_get_ns();
	f.every = every;
	f.turn = turn_of(probe);
	s = begin_freeze(probe, every, &key, f.begin);
	if (!s)
		return false;
	see_object(s, vm, pid, blocker, 0);
	if (note_unmounted(&key, &f))
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
		see_object(s, vm, pid, native_referent(h, w->monitor + h->monitor_object,
						       h->flags & HEAP_MONITOR_HANDLE), 0);
	return true;
}

/* The virtual thread has left its carrier, and waits for the monitor. */
static __always_inline void note_preempted(__u32 probe, __u64 thread)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, tid = (__u32)bpf_get_current_pid_tgid();
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct virtual_thread key = {};
	struct unmounted_wait f = {.kind = UNMOUNTED_MONITOR, .probe = probe};
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
			__sync_fetch_and_add(&c->begun, w->every);
		note_unmounted(&key, &f);
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
	struct virtual_count *c;
	struct unmounted_wait *f;
	struct scratch *s = 0;

	if (!chosen_at(pid, probe))
		return false;
	count(PROBE_HITS, 1);
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (!h || !mounted_on(vm, h, thread, &key))
		return false;
	f = bpf_map_lookup_elem(&unmounted_waits, &key);
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
		c = virtual_count_of(h->serial);
		if (c)
			__sync_fetch_and_add(&c->ended, f->every);
	}
	bpf_map_delete_elem(&unmounted_waits, &key);
	return s;
}
