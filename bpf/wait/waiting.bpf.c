/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Stacks of threads that are off the CPU, read from outside: most of those that wait for long do
 * not go on while somebody records, so that their stacks are not read then. An iterator over tasks
 * walks the ones that user space asks for.
 *
 * The walker is the same as in other programs, but the memory that it reads is not the current
 * process's. A process can hang whoever reads its memory, and a program of the kernel that hangs
 * cannot be ended. So the walker reads copies of pages, which user space makes, and the program
 * says which page it lacks. The walk is repeated until it lacks none: a thread that waits has its
 * stack where it is.
 *
 * Virtual threads that wait have left their carriers: all of their frames are on the heap. User
 * space finds them, and asks for one after the other.
 *
 * One program runs at a time, so there is one scratch.
 */
#define ALONE
#include "kernel/kernel.h"
#include "record/offcpu.h"

#define MAX_PAGES 4096
#define PAGE 4096ull

/* A copy of a page and the next one, so that all of a read is in it. */
struct page_copy {
	__u64 length; /* bytes that could be read; 0: none */
	__u8 bytes[2 * PAGE];
};

/* key: its address */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PAGES);
	__type(key, __u64);
	__type(value, struct page_copy);
} pages SEC(".maps");

/* In memory, as the walker's functions have no stack to spare. */
static __u64 page_at;

/* The first page that the walk lacked, + 1; 0 if it lacked none. */
static __u64 lacking;

static __always_inline long read_copy(void *to, __u32 size, const void *from)
{
	__u64 offset = (__u64)from & (PAGE - 1), at = 0;
	struct page_copy *p;

	page_at = (__u64)from - offset;
	p = bpf_map_lookup_elem(&pages, &page_at);
	if (p && offset + size <= p->length)
		at = (__u64)p->bytes + offset;
	else if (!p && !lacking)
		lacking = page_at + 1;
	return bpf_probe_read_kernel(to, size, (void *)at);
}

#define bpf_probe_read_user read_copy

#include "event/observe.bpf.h"
#include "kernel/registers.bpf.h"
#include "kernel/tasks.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_ASKED 1024

struct asked_thread {
	__u64 since;	/* when it left the CPU, which is only passed on */
	__u64 switches; /* how often it had until its first walk, + 1; 0 before */
};

/* key: thread whose stack is wanted */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ASKED);
	__type(key, __u32);
	__type(value, struct asked_thread);
} asked SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___switched {
	__u8 on_cpu; /* an int before Linux 7.3: its lowest byte */
};

#pragma clang attribute pop

static __always_inline bool on_cpu(struct task_struct *task)
{
	return ((struct task_struct___switched *)task)->on_cpu;
}

/* A function of its own, as there is little stack left below walk_user. */
static __noinline void begin_walk_of(struct scratch *s, const struct hotspot_process *vm, struct task_struct *task)
{
	begin_walks(s, vm, task, task->pid);
}

/*
 * Fills the sample with the thread's stack, and the observation behind it. Returns the size of the
 * record, 0 for none.
 */
static __always_inline __u64 read_stack(struct scratch *s, struct task_struct *task, __u64 since)
{
	__u32 pid = task->tgid;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct sample *r = &s->sample;
	struct observation *o = &s->seen.o;
	bool walked;
	long bytes;
	__u64 n;

	fill_header(&r->header, task, EVENT_OBSERVED, bpf_ktime_get_ns());
	r->flags = 0;
	r->end = END_NONE;
	r->cpu = 0;
	r->class_epoch = r->attachment = 0;
	r->user_frames = r->kernel_frames = 0;
	bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
	if (vm && vm->start_ticks != r->header.start / NS_PER_START_TICK)
		vm = 0;
	walked = !only_in_kernel(task) && read_registers(s, 0, task, true);
	if (walked) {
		begin_walk_of(s, vm, task);
		walk_user(s, vm);
	}
	__builtin_memset(o, 0, sizeof(*o));
	o->what = OBSERVED_WAIT;
	o->probe = PROBE_WAIT;
	o->every = 1;
	o->count = WAIT_VALUES;
	o->values[WAIT_SINCE] = since;
	o->values[WAIT_PC] = walked ? s->regs.pc : 0;
	o->values[WAIT_SP] = walked ? s->regs.sp : 0;
	n = r->user_frames;
	asm volatile("" : "+r"(n)); /* what is compared is what is used */
	if (n > MAX_USER_FRAMES)
		return 0;
	bytes = bpf_get_task_stack(task, &r->frames[n], MAX_WAIT_FRAMES * 8, 0);
	if (bytes > 0)
		r->kernel_frames = bytes / 8;
	n += r->kernel_frames;
	asm volatile("" : "+r"(n));
	if (n > MAX_USER_FRAMES + MAX_WAIT_FRAMES)
		return 0;
	bpf_probe_read_kernel((void *)s + offsetof(struct scratch, sample) + offsetof(struct sample, frames) + 8 * n,
			      sizeof(*o), o);
	return offsetof(struct sample, frames) + 8 * n + sizeof(*o);
}

/* What a thread's walk came to. */
struct walked {
	__u64 lacking; /* page that it lacks, + 1; then there is no record */
	__u64 size;    /* bytes of the record that follows */
};

/*
 * Writes {struct walked, record} of each thread that was asked for and has not gone on meanwhile.
 */
SEC("iter/task")
int read_waiting(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct walked walked = {};
	struct asked_thread *asks;
	__u64 switches, size;
	struct scratch *s;
	__u32 tid;

	if (!task || (task->flags & PF_KTHREAD))
		return 0;
	tid = task->pid;
	asks = bpf_map_lookup_elem(&asked, &tid);
	s = this_scratch();
	if (!asks || !s || on_cpu(task))
		return 0;
	switches = switches_of(task);
	if (!asks->switches)
		asks->switches = switches + 1;
	else if (asks->switches != switches + 1) /* it has gone on since its pages were copied */
		return 0;
	lacking = 0;
	size = read_stack(s, task, asks->since);
	walked.lacking = lacking;
	if (on_cpu(task) || switches_of(task) != switches || (task->flags & PF_EXITING))
		return 0;
	if (lacking)
		size = 0;
	asm volatile("" : "+r"(size)); /* what is compared is what is used */
	if (size > sizeof(s->sample) + sizeof(s->tail))
		return 0;
	walked.size = size;
	bpf_seq_write(seq, &walked, sizeof(walked));
	if (size)
		bpf_seq_write(seq, &s->sample, size);
	return 0;
}

/* A virtual thread. */
struct asked_virtual {
	struct event_header header; /* of the record */
	/* address of its object; the next ones are those of what the thread says of itself */
	__u64 continuation;
	__u64 mounted_at, state_at, blocker_at, waiter_at;
	__u64 lacking; /* result: as struct walked */
	__u64 size;    /* result: bytes of the record, 0 if there is none, as the thread is on a carrier */
	__u64 blocker, waiter;
	__u32 state, mounted;
};

/* The record of the last one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample);
} virtual_stack SEC(".maps");

/* Begins a walk in the newest chunk of a Continuation. */
static __noinline int begin_in_chunk(struct scratch *s, const struct hotspot_process *vm, __u64 continuation)
{
	struct epochs *e;
	__u32 slot;

	if (!s || !vm)
		return END_READ;
	slot = vm->slot;
	e = bpf_map_lookup_elem(&epochs, &slot);
	s->sample.flags = SAMPLE_ATTACHED | SAMPLE_JAVA_THREAD;
	s->sample.attachment = vm->serial;
	s->sample.class_epoch = e ? e->classes : 0;
	s->start.owner = (__u64)vm->serial << 32 | (e ? e->code : 0);
	s->start.thread = s->start.stack_base = s->start.entry = 0;
	begin_time();
	s->start.scan_left = SCAN_BUDGET;
	s->start.lookup_left = LOOKUP_BUDGET;
	s->start.chunk = STACKCOPY_CHUNK;
	if (!(vm->flags & HOTSPOT_CHUNKS) || !find_newest(vm, s, continuation))
		return END_HEAP;
	return next_chunk(vm);
}

SEC("syscall")
int read_virtual(struct asked_virtual *ctx)
{
	struct scratch *s = this_scratch();
	__u32 pid = ctx->header.pid, zero = 0;
	const struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct sample *to = bpf_map_lookup_elem(&virtual_stack, &zero), *r;
	__u64 size;

	if (!s || !vm || !to)
		return 0;
	r = &s->sample;
	r->header = ctx->header;
	r->end = END_NONE;
	r->cpu = 0;
	r->user_frames = r->kernel_frames = 0;
	__builtin_memset(r->comm, 0, sizeof(r->comm));
	lacking = 0;
	ctx->state = read_int(ctx->state_at);
	ctx->blocker = read_word(ctx->blocker_at);
	ctx->waiter = ctx->waiter_at ? read_word(ctx->waiter_at) : 0;
	ctx->mounted = read_int(ctx->mounted_at) & 0xff;
	s->start.unmounted = 1;
	if (!ctx->mounted && !begin_in_chunk(s, vm, ctx->continuation)) {
		s->regs.pc = s->caller.pc;
		s->regs.sp = s->caller.sp;
		s->regs.bp = s->caller.bp;
		walk_user(s, vm);
	}
	s->start.unmounted = 0;
	ctx->lacking = lacking;
	if (lacking || !r->user_frames)
		return 0;
	size = offsetof(struct sample, frames) + 8 * (__u64)r->user_frames;
	asm volatile("" : "+r"(size)); /* what is compared is what is used */
	if (size > sizeof(*r))
		return 0;
	bpf_probe_read_kernel(to, size, r);
	ctx->size = size;
	return 0;
}
