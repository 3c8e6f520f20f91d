/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Allocations of HotSpot, where a thread has met the end of its allocation buffer (TLAB): it got a
 * new one, or an object was allocated outside and the buffer is kept
 * (src/hotspot/share/gc/shared/allocTracer.cpp, JDK 11 and later). That is once in thousands of
 * objects. Exact counts are of VMs that were started with -XX:+DTraceAllocProbes.
 */
#pragma once

#include "event/observe.bpf.h"
#include "kernel/ringwakeup.bpf.h"

/* Arguments of a C++ function by their number, at its entry: System V ABI. */
static __always_inline __u64 parameter(const struct registers *r, int i)
{
#if defined(__TARGET_ARCH_x86)
	switch (i) {
	case 0: return r->di;
	case 1: return r->si;
	case 2: return r->dx;
	case 3: return r->cx;
	case 4: return r->r8;
	}
	return r->r9;
#elif defined(__TARGET_ARCH_arm64)
	return r->regs[i & 7];
#endif
}

/* What a C++ function returned, behind the call. */
static __always_inline __u64 result(const struct registers *r)
{
#if defined(__TARGET_ARCH_x86)
	return r->ax;
#elif defined(__TARGET_ARCH_arm64)
	return r->regs[0];
#endif
}

/* The probed instruction. */
static __always_inline __u64 probed_at(const struct registers *r)
{
#if defined(__TARGET_ARCH_x86)
	return r->ip;
#elif defined(__TARGET_ARCH_arm64)
	return r->pc;
#endif
}

/* The stack pointer there, and the frame pointer. */
static __always_inline __u64 probed_sp(const struct registers *r)
{
	return r->sp; /* the name on either machine */
}

static __always_inline __u64 probed_fp(const struct registers *r)
{
#if defined(__TARGET_ARCH_x86)
	return r->bp;
#elif defined(__TARGET_ARCH_arm64)
	return r->regs[29];
#endif
}

#define MAX_ALLOCATORS 16384 /* threads; of more, the one that was not heard of for longest is forgotten */

/* What is known of a thread's allocation buffer. */
struct buffer_state {
	__u32 epoch; /* buffer_epoch() when the thread got it */
	__u32 ended; /* 1 if an object did not fit into what is left of it and was allocated outside */
	__u64 room;  /* bytes of it, but for the object that it was begun with; 0 if its begin was not seen */
	__u64 owed;  /* bytes that no end has stood for yet */
	__u64 sited; /* bytes that its thread has allocated in all, up to the last that an end has stood for */
	__u32 turn;  /* turn_of() the probe then */
	__u32 pad;
};

/* key: thread */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_ALLOCATORS);
	__type(key, __u32);
	__type(value, struct buffer_state);
} buffers SEC(".maps");

/* How often the VM has taken all threads' buffers away, which collections do. */
static __always_inline __u32 buffer_epoch(const struct hotspot_process *vm, const struct hotspot_heap *h)
{
	struct epochs *e;
	__u32 slot;

	if (!vm || !h)
		return 0;
	slot = vm->slot;
	e = bpf_map_lookup_elem(&epochs, &slot);
	if (!e)
		return 0;
	return h->flags & HEAP_CONCURRENT ? e->stops : e->collections;
}

/* How many bytes a thread has allocated since it started; 0 if that is not known. */
static __always_inline __u64 allocated_by(const struct hotspot_heap *h, __u64 thread)
{
	__u64 start, top;

	if (!h || !h->thread_allocated)
		return 0;
	start = read_word(thread + h->tlab_start);
	top = read_word(thread + h->tlab_top);
	return read_word(thread + h->thread_allocated) + (top > start ? top - start : 0);
}

/*
 * For how many bytes an object stands that a thread met the end of its buffer with: the buffer is
 * the new one, or if it is allocated outside the one that is kept. 0 for none.
 *
 * The first object that a buffer has no room for was drawn: of all it is the first as likely as it
 * is large, as the buffer's end is a point among the bytes that the thread allocates. It stands for
 * the bytes before that end. Objects under other laws stand for nothing, as small ones among them
 * are likelier: those that come after the first before the thread gets another buffer; and the
 * first one after the buffer was taken away, which is any. The bytes of all these are owed, and the
 * next end stands for them, too; as are those of the object at an end itself, or larger ones would
 * stand for more than others. Of a buffer that was taken away, half was used on average. An object
 * that no buffer can have stands for itself.
 *
 * A VM gives up the buffer before it knows whether there is room for another. If there is none,
 * which is so of G1 before JDK 17 at the end of most regions, the object that met the end is
 * allocated outside while the thread has no buffer: buffer is 0 then.
 *
 * If the probe was not there for a while, nothing is known of what the thread did meanwhile. Then
 * the end stands for the whole buffer: as many ends fall into the time in which the probe is there
 * as buffers were used up in it, on average.
 */
static __always_inline __u64 stands_for(const struct hotspot_process *vm, const struct hotspot_heap *h, __u64 thread,
					__u64 size, __u64 buffer, bool outside, __u32 turn)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), epoch = buffer_epoch(vm, h);
	/* they are the same if the VM has no buffers */
	bool given_up = outside && !buffer && h && h->tlab_start != h->tlab_end;
	__u64 weight = 0, room = size < buffer ? buffer - size : 0, had = buffer;
	struct buffer_state *b, fresh = {.epoch = epoch, .turn = turn};

	b = bpf_map_lookup_elem(&buffers, &tid);
	if (given_up)
		had = b && b->room ? b->room : ~0ull;
	if (outside && (size >= had || (h && h->largest_buffered && size > h->largest_buffered))) {
		if (b) {
			b->sited += size;
			/* nothing else can stand for that buffer */
			if (given_up && !b->ended && b->epoch == epoch && b->turn == turn) {
				b->owed += b->room;
				b->ended = 1;
			}
		} else { /* of what came before, perhaps nothing, no more is known */
			fresh.ended = 1;
			fresh.sited = allocated_by(h, thread);
			bpf_map_update_elem(&buffers, &tid, &fresh, BPF_ANY);
		}
		return size;
	}
	if (!b) { /* perhaps the first buffer that the thread gets */
		fresh.sited = allocated_by(h, thread) - size;
		fresh.ended = outside;
		fresh.room = outside ? 0 : room;
		fresh.owed = size;
		bpf_map_update_elem(&buffers, &tid, &fresh, BPF_ANY);
		return 0;
	}
	if (b->turn != turn) {
		weight = given_up ? b->room : buffer;
		b->owed = 0;
		b->turn = turn;
	} else if (b->epoch != epoch) {
		b->owed += b->ended ? 0 : b->room / 2;
	} else if (!b->ended) {
		weight = b->owed + (b->room ? b->room : buffer);
		b->owed = 0;
	}
	if (weight)
		b->sited = allocated_by(h, thread) - size;
	b->epoch = epoch;
	b->owed += size;
	b->ended = outside;
	if (!outside)
		b->room = room;
	return weight;
}

/*
 * Notes an allocation; the registers are those at the entry of send_allocation_in_new_tlab or
 * _outside_tlab.
 */
static __always_inline bool see_allocation(const struct registers *r, __u32 probe, bool outside)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, every;
	const struct hotspot_process *vm;
	const struct hotspot_heap *h;
	struct scratch *s;
	__u64 size, buffer, thread, weight;

	if (!observed_at(pid, probe))
		return false;
	every = drawn_weight(probe); /* what stands for nothing costs a hit, too */
	vm = bpf_map_lookup_elem(&processes, &pid);
	h = heap_of(vm, pid);
	if (outside) {
		size = parameter(r, 2);
		thread = parameter(r, 3);
		buffer = h ? read_word(thread + h->tlab_end) - read_word(thread + h->tlab_start) : 0;
	} else {
		size = parameter(r, 3);
		buffer = parameter(r, 2);
		thread = parameter(r, 4);
	}
	weight = stands_for(vm, h, thread, size, buffer, outside, turn_of(probe));
	if (!weight || !every)
		return false;
	s = begin_observation(OBSERVED_ALLOCATION, probe, every);
	if (!s)
		return false;
	see_object(s, vm, pid, parameter(r, 1), parameter(r, 0));
	s->seen.o.flags = outside ? SEEN_OUTSIDE : 0;
	s->seen.o.count = 3;
	s->seen.o.values[0] = size;
	s->seen.o.values[1] = weight;
	s->seen.o.values[2] = thread;
	return true;
}

/* The heap of the current process, if what its threads have allocated can be read; or 0. */
static __always_inline struct hotspot_heap *counted_heap(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct hotspot_heap *h;

	if (!chosen(pid))
		return 0;
	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	return h && h->thread_allocated ? h : 0;
}

/*
 * Reports what a thread has allocated: the current one if it is about to leave its VM's list of
 * threads.
 */
static __always_inline void send_thread_end(struct ended_thread *e, const struct hotspot_heap *h, __u64 thread)
{
	e->thread = thread;
	e->allocated = allocated_by(h, thread);
	e->own_tid = (__u32)read_int(read_word(thread + h->thread_os) + h->os_thread_id);
	if (bpf_ringbuf_output(&events, e, sizeof(*e), wakeup_flags()))
		count(THREAD_ENDS_DROPPED, 1);
}

static __always_inline void see_thread_end(__u64 thread)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct hotspot_heap *h = counted_heap();
	struct ended_thread e = {};
	struct buffer_state *b;

	if (!h)
		return;
	fill_header(&e.header, (struct task_struct *)bpf_get_current_task_btf(), EVENT_VM_THREAD_END,
		    bpf_ktime_get_ns());
	b = bpf_map_lookup_elem(&buffers, &tid);
	e.sited = b ? b->sited : 0;
	bpf_map_delete_elem(&buffers, &tid);
	send_thread_end(&e, h, thread);
}

#define MAX_ENDING 1024 /* threads that are looked at when their VM ends */

/* The VM ends, and its threads with it, which do not leave its list. */
static __always_inline void see_vm_end(void)
{
	struct hotspot_heap *h = counted_heap();
	struct ended_thread e = {};
	__u64 list, thread = 0;
	__u32 length = ~0u, i;

	if (!h || !h->thread_list)
		return;
	fill_header(&e.header, (struct task_struct *)bpf_get_current_task_btf(), EVENT_VM_THREAD_END,
		    bpf_ktime_get_ns());
	e.sited = ~0ull;
	list = read_word(h->thread_list);
	if (h->list_threads) {
		length = read_int(list + h->list_length);
		list = read_word(list + h->list_threads);
	}
	for (i = 0; i < MAX_ENDING; i++) {
		if (i >= length)
			break;
		if (h->list_threads)
			thread = read_word(list + 8 * (__u64)i);
		else
			thread = thread ? read_word(thread + h->thread_next) : list;
		if (!thread)
			break;
		send_thread_end(&e, h, thread);
	}
	if (i == MAX_ENDING && length > i)
		count(THREAD_ENDS_DROPPED, 1);
	e.thread = e.allocated = 0;
	if (bpf_ringbuf_output(&events, &e, sizeof(e), wakeup_flags()))
		count(THREAD_ENDS_DROPPED, 1);
}

#define MAX_COUNTED_CLASSES 16384

struct counted_class {
	__u64 klass;
	__u32 serial; /* of the VM */
	__u32 pad;
};

struct class_count {
	__u64 objects, bytes;
};

/* Objects that VMs allocated: each one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COUNTED_CLASSES);
	__type(key, struct counted_class);
	__type(value, struct class_count);
} allocated SEC(".maps");

/* Counts one object. */
static __always_inline void count_object(__u64 object)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	const struct hotspot_heap *h = heap_of(vm, pid);
	struct counted_class key = {};
	struct class_count *c, none = {};
	__u64 size;

	if (!h)
		return;
	count(PROBE_HITS, 1);
	key.klass = klass_of(h, object);
	key.serial = h->serial;
	size = size_of_object(h, object, key.klass);
	c = bpf_map_lookup_elem(&allocated, &key);
	if (!c) {
		bpf_map_update_elem(&allocated, &key, &none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&allocated, &key);
	}
	if (!c) {
		drop_observation();
		return;
	}
	__sync_fetch_and_add(&c->objects, 1);
	__sync_fetch_and_add(&c->bytes, size);
}
