/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * References that are stored into old objects, at G1's write barrier
 * (src/hotspot/share/gc/g1/g1BarrierSetRuntime.cpp). Compiled code marks the card of the store as
 * dirty and puts it into a queue of its thread, unless the card is young or dirty already. When the
 * queue is full, it calls the VM with the card; so that is one of G1UpdateBufferSize cards that the
 * thread made dirty.
 */
#pragma once

#include "event/allocation.bpf.h"

#define MAX_MARKERS 16384 /* threads; of more, the one that was not heard of for longest is forgotten */

/*
 * Words where compiled code may have the object: at the stack pointer, and at the frame pointer,
 * above which C1's stub (g1_post_barrier_slow) has its argument, the address that was stored to.
 * Text has room for as many and for the registers.
 */
#define STACK_WORDS 32
#define FRAME_WORDS 6

/* What is known of a thread's queue. */
struct marker_state {
	__u32 epoch; /* buffer_epoch() at its last call */
	__u32 turn;  /* turn_of() the probe then */
};

/* key: thread */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_MARKERS);
	__type(key, __u32);
	__type(value, struct marker_state);
} markers SEC(".maps");

/*
 * Whether the thread calls because it has no queue, as collections take them away: then the card
 * stands for itself. If the probe was not there for a while, nothing is known of the thread's calls
 * meanwhile, and the queue counts as full: as many calls fall into the time in which the probe is
 * there as queues were filled in it, on average.
 */
static __always_inline bool has_no_queue(__u32 epoch, __u32 turn)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct marker_state *m = bpf_map_lookup_elem(&markers, &tid), now = {.epoch = epoch, .turn = turn};
	bool none;

	if (!m) {
		bpf_map_update_elem(&markers, &tid, &now, BPF_ANY);
		return true;
	}
	none = m->turn == turn && m->epoch != epoch;
	*m = now;
	return none;
}

/*
 * Notes a card. The registers are those where write_ref_field_post_entry goes on to
 * G1DirtyCardQueueSet::enqueue(queue, card), of the set of queues. All others are still those of
 * compiled code.
 */
static __always_inline bool see_card(const struct registers *r, __u32 probe)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, every;
	const struct hotspot_process *vm;
	struct scratch *s;
	bool none;

	if (!observed_at(pid, probe))
		return false;
	every = drawn_weight(probe);
	vm = bpf_map_lookup_elem(&processes, &pid);
	none = has_no_queue(buffer_epoch(vm, heap_of(vm, pid)), turn_of(probe));
	if (!every)
		return false;
	s = begin_observation(OBSERVED_CARD, probe, every);
	if (!s)
		return false;
	s->seen.o.count = 2;
	s->seen.o.values[0] = parameter(r, 2);
	s->seen.o.values[1] = none;
	if (bpf_probe_read_kernel(s->seen.text, sizeof(*r), r))
		return true;
	s->seen.o.text_len = sizeof(*r);
	if (bpf_probe_read_user(s->seen.text + sizeof(*r), 8 * STACK_WORDS, (void *)probed_sp(r)))
		return true;
	s->seen.o.text_len += 8 * STACK_WORDS;
	if (!bpf_probe_read_user(s->seen.text + sizeof(*r) + 8 * STACK_WORDS, 8 * FRAME_WORDS, (void *)probed_fp(r)))
		s->seen.o.text_len += 8 * FRAME_WORDS;
	return true;
}
