/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A hit of a probe becomes a record: an observation with its calling context. Two programs make it.
 * The probe's own program counts the hit, decides whether to record it, claims this CPU's working
 * memory and writes the observation there. A tail call leads to the second program, observe, which
 * all probes share: it walks the stack and writes the record. So the verifier checks the walker
 * once.
 *
 * Programs of probes can be preempted by another thread that hits one on the same CPU, though they
 * do not leave the CPU. Hence the claim: a program that finds the memory in use drops its record
 * and counts that. And kernels since 6.13 give functions with large stacks a stack per CPU, which
 * such a thread would overwrite, but not in programs that make tail calls (check_max_stack_depth in
 * kernel/bpf/verifier.c): every program here makes one.
 */
#pragma once

#include "event/heap.bpf.h"
#include "walk/walk.bpf.h"

#define MAX_PROBES 1024

/* Cookies of what comes as perf events and from the scheduler: one of each. */
#define PROBE_FAULT (MAX_PROBES - 1)
#define PROBE_CYCLES (MAX_PROBES - 2)
#define PROBE_INSTRUCTIONS (MAX_PROBES - 3)
#define PROBE_WAIT (MAX_PROBES - 4)

/* What user space says of a probe. */
struct probe {
	__u32 every; /* executions of which one is recorded; 0: none */
	__u32 turn;  /* how often the probe was attached: what was noted in another turn may be out of date */
	__u32 off;   /* 1: it does nothing, as another one at the same place observes the same process */
	__u32 pad;
};

struct probe_count {
	__u64 hits; /* executions in processes that are observed */
	__u64 told; /* hits that were drawn for a record */
	/*
	 * of those drawn: hits at a free monitor, which are recorded only if the thread waits all
	 * the same, or of virtual threads that wait for no object
	 */
	__u64 free;
	__u64 releases; /* of locks, which are records on top of those drawn */
};

/* key: attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, struct probe);
} probes SEC(".maps");

/* key: attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, struct probe_count);
} probe_counts SEC(".maps");

enum tails {
	TAIL_OBSERVE, /* the program that walks and writes */
	TAIL_NONE,    /* there is none: what a program calls that must make a tail call and has none to make */
	TAIL_COUNT,
};

/* How often the probe was attached. */
static __always_inline __u32 turn_of(__u32 probe)
{
	struct probe *p = bpf_map_lookup_elem(&probes, &probe);

	return p ? p->turn : 0;
}

/* Another one each time that the programs are loaded: nobody can know which hits are recorded. */
const volatile __u64 draw_seed = 0;

/*
 * Whether hit n of a probe on this CPU is the one in every that is recorded. Hits are counted off
 * in blocks of that many, and of each block one is drawn: as many are recorded as if it was always
 * the first, but what a program does in step with the blocks is recorded as often as it happens.
 * The draw is a hash, not a state, as hits of preempted threads overtake.
 */
static __always_inline bool drawn(__u32 probe, __u64 n, __u32 every)
{
	__u64 block = n / every, h = mix(draw_seed, (__u64)probe << 32 | bpf_get_smp_processor_id());

	h = mix(mix(h, block), draw_seed);
	return n - block * every == (h >> 32) * every >> 32;
}

/*
 * Counts a hit and draws whether to record it. Returns the number of hits that the record stands
 * for; 0 if it is not to be recorded. Each CPU counts for itself.
 */
static __always_inline __u32 drawn_weight(__u32 probe)
{
	struct probe *p = bpf_map_lookup_elem(&probes, &probe);
	struct probe_count *c = bpf_map_lookup_elem(&probe_counts, &probe);
	__u32 every;
	__u64 n;

	if (!p || !c)
		return 0;
	count(PROBE_HITS, 1);
	n = __sync_fetch_and_add(&c->hits, 1);
	every = p->every;
	if (!every || (every > 1 && !drawn(probe, n, every)))
		return 0;
	__sync_fetch_and_add(&c->told, 1);
	return every;
}

/* Whether the probe is to do nothing. */
static __always_inline bool probe_off(__u32 probe)
{
	struct probe *p = bpf_map_lookup_elem(&probes, &probe);

	return !p || p->off;
}

#define MAX_STRANGERS 1024 /* of more, the one that was not heard of for longest is forgotten */

/*
 * A process that passes probes and is not observed. Anybody may map a library and call what is in
 * it.
 */
struct stranger {
	__u64 hits;
	__u32 probe; /* the last one that it passed */
	__u32 pad;
};

/* key: pid */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_STRANGERS);
	__type(key, __u32);
	__type(value, struct stranger);
} strangers SEC(".maps");

static __always_inline void count_stranger(__u32 pid, __u32 probe)
{
	struct stranger *s = bpf_map_lookup_elem(&strangers, &pid), first = {.hits = 1, .probe = probe};

	if (!s) {
		bpf_map_update_elem(&strangers, &pid, &first, BPF_NOEXIST);
		return;
	}
	__sync_fetch_and_add(&s->hits, 1);
	s->probe = probe;
}

/*
 * Whether a process was chosen. The hit of another one is only counted, apart from those that the
 * budget is spent on.
 */
static __always_inline bool chosen_at(__u32 pid, __u32 probe)
{
	if (probe_off(probe))
		return false;
	if (chosen(pid))
		return true;
	count_stranger(pid, probe);
	return false;
}

/*
 * Whether a process was chosen and the agent is attached to its VM. If it is not, neither Java
 * frames nor a class can be read, and the hit is only counted.
 */
static __always_inline bool observed_at(__u32 pid, __u32 probe)
{
	if (!chosen_at(pid, probe))
		return false;
	if (bpf_map_lookup_elem(&processes, &pid))
		return true;
	count(PROBE_HITS, 1);
	count(HITS_UNATTACHED, 1);
	count_stranger(pid, probe);
	return false;
}

/* Claims working memory for an observation; 0 if it is in use. */
static __always_inline struct scratch *begin_observation(__u8 what, __u32 probe, __u32 every)
{
	struct scratch *s = claim_scratch();
	struct observation *o;

	count(OBSERVATIONS_ATTEMPTED, 1);
	if (!s) {
		count(OBSERVATIONS_DROPPED_BUSY, 1);
		return 0;
	}
	s->watch.begin = bpf_ktime_get_ns();
	s->watch.klass = s->watch.bare = 0;
	o = &s->seen.o;
	o->what = what;
	o->place = o->flags = o->count = 0;
	o->text_len = o->failed = o->cut = 0;
	o->probe = probe;
	o->every = every;
	o->stops = o->pad2 = 0;
	o->object = 0;
	return s;
}

/* What would have been observed found no room in a table. */
static __always_inline void drop_observation(void)
{
	count(OBSERVATIONS_ATTEMPTED, 1);
	count(OBSERVATIONS_DROPPED_TABLE_FULL, 1);
}

/* Notes an object: where it is, and the class whose name the record will have. */
static __always_inline void see_object(struct scratch *s, const struct hotspot_process *vm, __u32 pid, __u64 object,
				       __u64 klass)
{
	struct hotspot_heap *h = heap_of(vm, pid);

	if (!h)
		return;
	s->seen.o.object = object;
	s->seen.o.place = place_of(h, object);
	s->watch.klass = klass ? klass : klass_of(h, object);
}

static __always_inline void end_observation(struct scratch *s)
{
	count(NS_PROBES, bpf_ktime_get_ns() - s->watch.begin);
	release_scratch(s);
}

/* Copies the name of the class into the text. */
static __always_inline void tell_class(struct scratch *s, const struct hotspot_heap *h)
{
	struct observation *o = &s->seen.o;
	__u64 symbol = read_word(s->watch.klass + h->klass_name);
	__u32 len = 0;

	if (!symbol)
		return;
	bpf_probe_read_user(&len, 2, (void *)(symbol + h->symbol_length));
	if (len > MAX_OBSERVED_TEXT) {
		len = MAX_OBSERVED_TEXT;
		o->flags |= SEEN_CUT;
	}
	if (!bpf_probe_read_user(s->seen.text, len, (void *)(symbol + h->symbol_body)))
		o->text_len = len;
}

/* Appends the observation behind n frames; returns its size in bytes. */
static __always_inline __u32 append_observation(struct scratch *s, __u64 n)
{
	__u32 text = s->seen.o.text_len, size;

	asm volatile("" : "+r"(n), "+r"(text)); /* what is compared is what is used */
	if (n > MAX_USER_FRAMES || text > MAX_OBSERVED_TEXT)
		return 0;
	size = sizeof(struct observation) + ((text + 7) & ~7u);
	bpf_probe_read_kernel((void *)s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) + 8 * n,
			      size, &s->seen);
	return size;
}

/* Takes the user's registers as a probe gets them. */
static __always_inline void take_registers(struct scratch *s, const struct registers *regs)
{
#if defined(__TARGET_ARCH_x86)
	s->regs.pc = regs->ip;
	s->regs.sp = regs->sp;
	s->regs.bp = regs->bp;
	s->regs.r13 = regs->r13;
	s->regs.rbx = regs->bx;
	s->regs.thread = regs->r15;
	s->regs.goroutine = regs->r14;
#elif defined(__TARGET_ARCH_arm64)
	s->regs.pc = regs->pc;
	s->regs.sp = regs->sp;
	s->regs.bp = regs->regs[29];
	s->regs.thread = regs->regs[28];
#endif
}

/*
 * Begins the record of what was noted, with the context of the registers in scratch. Returns the VM
 * of the process, 0 if none is attached.
 */
static __always_inline const struct hotspot_process *begin_record(struct scratch *s)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 pid = id >> 32, tid = (__u32)id;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct sample *r = &s->sample;

	fill_header(&r->header, task, EVENT_OBSERVED, s->watch.begin);
	r->flags = 0;
	r->end = END_NONE;
	r->cpu = bpf_get_smp_processor_id();
	r->class_epoch = r->attachment = 0;
	r->user_frames = r->kernel_frames = 0;
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	if (vm && vm->start_ticks != r->header.start / NS_PER_START_TICK)
		vm = 0;
	if (!s->watch.bare) {
		begin_walks(s, vm, task, tid);
		walk_user(s, vm);
	}
	return vm;
}

/*
 * Writes what was noted to a ring, with the context of the registers in scratch. Ends the
 * observation.
 */
static __always_inline void write_observation(struct scratch *s, void *ring, __u64 wakeup)
{
	const struct hotspot_process *vm = begin_record(s);
	__u32 pid = bpf_get_current_pid_tgid() >> 32, n;
	struct sample *r = &s->sample;
	struct hotspot_heap *h;
	__u64 size;

	h = heap_of(vm, pid);
	if (h && s->watch.klass)
		tell_class(s, h);
	if (vm) {
		__u32 slot = vm->slot;
		struct epochs *e = bpf_map_lookup_elem(&epochs, &slot);

		s->seen.o.stops = e ? e->stops : 0;
	}
	n = r->user_frames;
	size = offsetof(struct sample, frames) + 8 * (__u64)n + append_observation(s, n);
	if (size > sizeof(*r))
		size = sizeof(*r);
	if (bpf_ringbuf_output(ring, r, size, wakeup))
		count(OBSERVATIONS_DROPPED_RING_FULL, 1);
	else
		count(OBSERVATIONS_DELIVERED, 1);
	end_observation(s);
}
