/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waits of threads, from a probe where one begins to another where it ends; there is none at the
 * return, as such probes write into a guest's stack. Monitors: ObjectMonitor::enter, from JDK 24 on
 * LightweightSynchronizer::enter, from JDK 26 on ObjectSynchronizer::enter; whether the monitor was
 * found taken (the VM tried to acquire it by spinning) and whether that succeeded. Where it is not
 * known where the VM spins, a monitor was taken if the thread slept. java.util.concurrent:
 * Unsafe.park, with the object that the thread says it waits for. A wait that is not recorded is
 * not timed either.
 *
 * Who had a lock meanwhile is seen where it is released to a waiter, in the thread that had it:
 * ObjectMonitor::exit_epilog wakes the next thread for a monitor, Unsafe.unpark for a lock of
 * java.util.concurrent. Only releases of locks are recorded for which a thread waits whose wait is
 * recorded.
 */
#pragma once

#include "event/allocation.bpf.h"
#include "lock/unmounted.bpf.h"
#include "kernel/operand.bpf.h"

#define MAX_WAITING 16384 /* threads at once */

struct lock_wait {
	__u64 begin;   /* ns */
	/*
	 * the ObjectMonitor, or with handle a handle of the object: the address of a word that
	 * refers to it
	 */
	__u64 monitor;
	/*
	 * of the thread, ns: guards against a reused number; 0 if user space has found the thread
	 * waiting
	 */
	__u64 born;
	__u64 sleeps;  /* of the thread so far */
	__u64 behind;  /* of a monitor: where the call that got there returns to, 0 if that is not known */
	/*
	 * what the lock is known by: the ObjectMonitor, or the object that the thread parks for; 0
	 * if unknown
	 */
	__u64 lock;
	__u32 every;
	__u8 flags; /* enum seen_flags */
	__u8 begun; /* enum wait_begin */
	__u16 turn; /* turn_of() the probe */
};

/* How a wait began. */
enum wait_begin {
	BEGUN_HANDLE = 1, /* wait.monitor is a handle */
	BEGUN_FREE = 2,	  /* nobody had the monitor */
};

/* key: thread; in ObjectMonitor::enter */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WAITING);
	__type(key, __u32);
	__type(value, struct lock_wait);
} entering SEC(".maps");

/*
 * key: probe behind a call; value: its distance in bytes from where the call returns to, plus 1; 0
 * if the probe takes all that passes. Functions may end with a jump to the one that waits: behind
 * their calls threads also pass that have not waited.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, __s64);
} return_sites SEC(".maps");

/* key: thread; in Unsafe.park */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WAITING);
	__type(key, __u32);
	__type(value, struct lock_wait);
} parked SEC(".maps");

/* A lock of a process: see lock_wait.lock. */
struct lock_key {
	__u64 lock;
	__u32 pid;
	__u32 pad;
};

/*
 * How many threads wait for a lock whose waits are recorded. Of those with none, the one is
 * forgotten that was used least recently.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_WAITING);
	__type(key, struct lock_key);
	__type(value, __u64);
} wanted_locks SEC(".maps");

/* A thread waits for the lock from now on. */
static __always_inline void want_lock(struct lock_wait *w, __u64 lock)
{
	struct lock_key key = {.lock = lock, .pid = bpf_get_current_pid_tgid() >> 32};
	__u64 *waiting, one = 1;

	if (!lock)
		return;
	waiting = bpf_map_lookup_elem(&wanted_locks, &key);
	if (waiting)
		__sync_fetch_and_add(waiting, 1);
	else if (bpf_map_update_elem(&wanted_locks, &key, &one, BPF_NOEXIST)) {
		waiting = bpf_map_lookup_elem(&wanted_locks, &key); /* another thread was first */
		if (!waiting)
			return;
		__sync_fetch_and_add(waiting, 1);
	}
	w->lock = lock;
}

/* Does a thread wait for the lock whose wait is recorded? */
static __always_inline bool lock_wanted(__u64 lock)
{
	struct lock_key key = {.lock = lock, .pid = bpf_get_current_pid_tgid() >> 32};
	__u64 *waiting = bpf_map_lookup_elem(&wanted_locks, &key);

	return waiting && *waiting;
}

/* Forgets the wait of this thread, if there is one: it has ended, or was not seen to end. */
static __always_inline void forget_wait(void *waits, __u32 tid)
{
	struct lock_wait *w = bpf_map_lookup_elem(waits, &tid);
	struct lock_key key = {};
	__u64 *waiting;

	if (!w)
		return;
	if (w->lock) {
		key.lock = w->lock;
		key.pid = bpf_get_current_pid_tgid() >> 32;
		waiting = bpf_map_lookup_elem(&wanted_locks, &key);
		if (waiting && *waiting)
			__sync_fetch_and_add(waiting, -1);
	}
	bpf_map_delete_elem(waits, &tid);
}

/*
 * Whether nobody has an ObjectMonitor. The interpreter and C1's code call ObjectMonitor::enter for
 * these as well, on JDK 8 always and later where the monitor was not tried first. An owner that is
 * not known counts as one.
 */
static __always_inline bool monitor_free(__u64 monitor)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_heap *h;
	__u64 owner = 1;

	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	if (!h || !h->monitor_owner || bpf_probe_read_user(&owner, sizeof(owner), (void *)(monitor + h->monitor_owner)))
		return false;
	return !owner;
}

/*
 * A hit that was to be recorded found a free monitor, so there will hardly be anything to record.
 */
static __always_inline void count_free(__u32 probe)
{
	struct probe_count *c = bpf_map_lookup_elem(&probe_counts, &probe);

	if (c)
		__sync_fetch_and_add(&c->free, 1);
}

static __always_inline __u64 parked_for(const struct registers *r);

/*
 * A wait begins. parks are the registers of a thread that parks, 0 for one that enters a monitor.
 */
static __always_inline void begin_wait(void *waits, __u32 probe, __u64 monitor, __u8 begun, __u64 behind,
				       const struct registers *parks)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct task_struct *task;
	__u32 pid = id >> 32, tid = (__u32)id;
	struct lock_wait w = {};

	if (!observed_at(pid, probe))
		return;
	w.every = drawn_weight(probe);
	forget_wait(waits, tid); /* an earlier one that was not seen to end */
	if (!w.every)
		return;
	task = (struct task_struct *)bpf_get_current_task_btf();
	w.born = task->start_boottime;
	w.sleeps = sleeps_of(task);
	w.monitor = monitor;
	w.begun = begun;
	if (monitor && !(begun & BEGUN_HANDLE) && monitor_free(monitor)) {
		w.begun |= BEGUN_FREE;
		count_free(probe);
	} else if (!(begun & BEGUN_HANDLE)) {
		want_lock(&w, parks ? parked_for(parks) : monitor);
	}
	w.behind = behind;
	w.turn = turn_of(probe);
	w.begin = bpf_ktime_get_ns();
	if (bpf_map_update_elem(waits, &tid, &w, BPF_ANY))
		drop_observation();
}

/*
 * The wait of this thread, at a later probe of the same wait; 0 if there is none. It counts this
 * probe's hit; drawn_weight() has counted the first probe's.
 */
static __always_inline struct lock_wait *this_wait(void *waits)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)id;
	struct lock_wait *w;

	if (!chosen(id >> 32))
		return 0;
	count(PROBE_HITS, 1);
	w = bpf_map_lookup_elem(waits, &tid);
	return w && (w->born == task->start_boottime || !w->born) ? w : 0;
}

/* A thread that ends while it waits leaves nothing behind: its number may be another one's soon. */
static __always_inline void forget_thread(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();

	forget_wait(&entering, tid);
	forget_wait(&parked, tid);
	bpf_map_delete_elem(&buffers, &tid);
}

/*
 * Notes a wait that ends here. That of a thread that found its monitor free, and then neither spun
 * nor slept, is none.
 */
static __always_inline struct scratch *see_wait(void *waits, __u8 what, __u32 probe)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct lock_wait *w = this_wait(waits);
	struct scratch *s;

	if (!w || probe_off(probe))
		return 0;
	if (w->turn != (__u16)turn_of(probe)) { /* its end was not seen; this is that of another one */
		forget_wait(waits, tid);
		return 0;
	}
	if ((w->begun & BEGUN_FREE) && !(w->flags & SEEN_CONTENDED)) {
		forget_wait(waits, tid);
		return 0;
	}
	s = begin_observation(what, probe, w->every);
	if (s) {
		s->seen.o.flags = w->flags;
		s->seen.o.count = 2;
		s->seen.o.values[0] = now - w->begin;
		s->seen.o.object = w->monitor;
		s->seen.o.values[1] = w->lock;
		s->watch.handle = w->begun & BEGUN_HANDLE;
	}
	forget_wait(waits, tid);
	return s;
}

/* Where the call of a function returns to whose first lines have not moved the stack pointer. */
static __always_inline __u64 return_address(const struct registers *r)
{
#if defined(__TARGET_ARCH_x86)
	return read_word(r->sp);
#elif defined(__TARGET_ARCH_arm64)
	return r->regs[30];
#endif
}

/*
 * Forgets a wait of this thread for a monitor that cannot have ended at a probe: it began in
 * another call, behind which there is no probe.
 */
static __always_inline void forget_other(__u32 probe, __u64 pc)
{
	__s64 *distance = bpf_map_lookup_elem(&return_sites, &probe);
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct lock_wait *w = bpf_map_lookup_elem(&entering, &tid);

	if (distance && *distance && w && w->behind && w->behind != pc - (*distance - 1))
		forget_wait(&entering, tid);
}

/* Has this thread slept since the begin of its wait? Then the monitor was taken. */
static __always_inline void note_sleep(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct lock_wait *w = bpf_map_lookup_elem(&entering, &tid);

	if (w && w->sleeps != sleeps_of((struct task_struct *)bpf_get_current_task_btf()))
		w->flags |= SEEN_CONTENDED;
}

/* The thread has acquired the monitor. */
static __always_inline bool see_monitor(__u32 probe)
{
	struct scratch *s = see_wait(&entering, OBSERVED_MONITOR, probe);
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	__u64 monitor;

	if (!s)
		return false;
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	monitor = s->seen.o.object;
	s->seen.o.object = 0;
	if (!h)
		return true;
	if (s->watch.handle)
		see_object(s, vm, pid, read_word(monitor), 0);
	else
		see_object(s, vm, pid,
			   native_referent(h, monitor + h->monitor_object, h->flags & HEAP_MONITOR_HANDLE), 0);
	return true;
}

/* How many registers functions keep for their callers. */
#if defined(__TARGET_ARCH_x86)
#define KEPT_REGISTERS 6
#elif defined(__TARGET_ARCH_arm64)
#define KEPT_REGISTERS 10
#endif

static __always_inline void kept_registers(__u64 *kept, const struct registers *r)
{
#if defined(__TARGET_ARCH_x86)
	kept[0] = r->bx;
	kept[1] = r->r12;
	kept[2] = r->r13;
	kept[3] = r->r14;
	kept[4] = r->r15;
	kept[5] = r->bp;
#elif defined(__TARGET_ARCH_arm64)
	for (int i = 0; i < KEPT_REGISTERS; i++)
		kept[i] = r->regs[19 + i];
#endif
}

/*
 * Where a thread is found by its id and nobody knows it yet, as it is new: functions of the VM that
 * let it wait need its JavaThread before and behind the wait, and so have it in one of the
 * registers that the functions they call keep for them. candidates are these registers.
 */
static __noinline int learn_thread(const struct hotspot_process *vm, struct task_struct *task, const __u64 *candidates)
{
	__u64 born = task->start_boottime;
	__u32 own = own_tid(task);

	if (!find_known_thread(task->tgid, own, born, 0))
		return 0;
	for (int i = 0; i < KEPT_REGISTERS; i++) {
		if (candidates[i] && !find_known_thread(task->tgid, own, born, candidates[i]))
			return 0;
	}
	return 1;
}

/*
 * The kernel side learns whose thread this is, if that needs to be learned and the registers say
 * it.
 */
static __always_inline void learn_from(const struct registers *regs, struct scratch *s)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);

	if (!vm || !(vm->flags & HOTSPOT_THREADS))
		return;
	kept_registers(s->saved_words, regs);
	learn_thread(vm, task, s->saved_words);
}

/*
 * Whether objects of this class are locks: see waitsForWork in agent/collect/events. The names end
 * with Sync, or it is StampedLock.
 */
static __always_inline bool is_lock_class(const struct hotspot_heap *h, __u64 klass)
{
	__u64 symbol = read_word(klass + h->klass_name);
	__u32 end = 0;
	__u16 len = 0;

	bpf_probe_read_user(&len, sizeof(len), (void *)(symbol + h->symbol_length));
	if (!symbol || len < sizeof(end))
		return false;
	bpf_probe_read_user(&end, sizeof(end), (void *)(symbol + h->symbol_body + len - sizeof(end)));
	return end == 0x636e7953 /* Sync */ || end == 0x6b636f4c /* Lock */;
}

/* What a java.lang.Thread says that it parks for. */
static __always_inline __u64 park_blocker(const struct hotspot_heap *h, __u64 thread)
{
	return thread ? referent(h, thread + h->park_blocker) : 0;
}

/* The same of a JavaThread. A virtual thread that cannot give up its carrier parks it. */
static __always_inline __u64 parked_object(const struct hotspot_heap *h, __u64 thread)
{
	__u32 object = h->flags & HEAP_MOUNTED ? h->thread_current : h->thread_object;

	return park_blocker(h, native_referent(h, thread + object, h->flags & HEAP_THREAD_HANDLE));
}

/*
 * The lock that the current thread is about to park for; 0 if it waits for something else, or that
 * is not known.
 */
static __always_inline __u64 parked_for(const struct registers *r)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid(), object = 0;
	__u32 pid = id >> 32;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	const struct hotspot_heap *h = heap_of(vm, pid);
	struct java_thread *t;
	struct scratch *s;

	if (!vm || !h || !(h->flags & HEAP_PARK_BLOCKER))
		return 0;
	s = claim_scratch();
	if (!s)
		return 0;
	learn_from(r, s);
	t = current_java_thread(vm, s, task, (__u32)id, 0);
	if (t)
		object = parked_object(h, t->thread);
	release_scratch(s);
	return object && is_lock_class(h, klass_of(h, object)) ? object : 0;
}

/*
 * Notes that the current thread releases a lock to a thread that waits for it, if such a wait is
 * recorded.
 */
static __always_inline struct scratch *see_release(__u32 probe, __u64 lock)
{
	struct probe *p = bpf_map_lookup_elem(&probes, &probe);
	struct probe_count *c = bpf_map_lookup_elem(&probe_counts, &probe);
	struct scratch *s;

	if (!p || !c || !p->every || !lock || !lock_wanted(lock))
		return 0;
	__sync_fetch_and_add(&c->releases, 1);
	s = begin_observation(OBSERVED_RELEASE, probe, 1);
	if (s) {
		s->seen.o.count = 1;
		s->seen.o.values[0] = lock;
	}
	return s;
}

/* The thread is about to wake the next one for a monitor that it has left. */
static __always_inline bool see_monitor_released(const struct registers *r, __u32 probe)
{
	if (!chosen_at(bpf_get_current_pid_tgid() >> 32, probe))
		return false;
	count(PROBE_HITS, 1);
	return see_release(probe, parameter(r, 0));
}

/*
 * Unsafe.unpark: the thread wakes another one, its argument, which may wait for a lock that this
 * one has left.
 */
static __always_inline bool see_unpark(const struct registers *r, __u32 probe)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_heap *h;

	if (!chosen_at(pid, probe))
		return false;
	count(PROBE_HITS, 1);
	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	if (!h || !(h->flags & HEAP_PARK_BLOCKER))
		return false;
	return see_release(probe, park_blocker(h, native_referent(h, parameter(r, 2) & ~3ull, false)));
}

/* The thread has been woken, or has waited long enough. */
static __always_inline bool see_park(const struct registers *regs, __u32 probe)
{
	struct scratch *s = see_wait(&parked, OBSERVED_PARK, probe);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid(), object;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct java_thread *t;
	__u32 pid = id >> 32;

	if (!s)
		return false;
	s->seen.o.object = 0;
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (!h || !vm || !(h->flags & HEAP_PARK_BLOCKER))
		return true;
	learn_from(regs, s);
	t = current_java_thread(vm, s, task, (__u32)id, 0);
	if (!t)
		return true;
	forget_kept(vm, h, t->thread);
	object = parked_object(h, t->thread);
	if (object)
		see_object(s, vm, pid, object, 0);
	return true;
}
