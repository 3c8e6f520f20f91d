//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The walker's parts as programs of their own, for tests only. A syscall program runs in the process that asks for
 * it, so memory of the test plays the guest's. The task is played too: where a kernel's task_struct has the fields
 * that the walker reads, a map's value has those of the request.
 */
#include "intern.bpf.h"
#include "registers.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct request {
	__u64 pc, sp, bp, r13, rbx; /* struct user_registers */
	__u64 thread, goroutine;    /* likewise */
	__u64 fsbase, born;	    /* of the task */
	__u32 pid, tid;
	__u64 begin;			 /* leaf: of the code; intern: name of the thread */
	__u64 base;			 /* stack copy: end of the stack */
	__u32 complete, words, len; /* leaf; scan, intern: class epoch; stack copy */
	__u32 lost;		    /* context: the record does not go out */
	__u32 exec;		    /* context: programs that the process had executed */
	__u32 own_tid;		    /* of the task, in a pid namespace inside of another one */
	__u64 walk_ns;		    /* walk: as the constant, which it replaces; 0: no bound */
	__u64 stalled;		    /* walk: for how long the CPU stood still just after its begin, ns */

	/* answers */
	__u64 java_thread, stack_base, word, stackcopy_len, ns;
	__u64 blob_begin;
	__u32 blob_kind, blob_frame, blob_complete, blob_id, blob_deopt, blob_deopt_mh;
};

struct request *export_request __attribute__((unused));
enum blob_kind *export_blob_kind __attribute__((unused));

#define FAKE_PID (31 << 10) /* where in it the struct pid is */

struct fake_task {
	__u8 bytes[32 << 10]; /* more than any kernel's task_struct has */
};

/* key: 0 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fake_task);
} tasks SEC(".maps");

struct record {
	struct sample sample;
	__u64 tail[MAX_USER_FRAMES / 2 + 2];
};

/* key: 0; where walk and context leave their sample */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record);
} samples SEC(".maps");

static __always_inline struct task_struct *fake_task(struct request *r)
{
	__u32 zero = 0;
	struct fake_task *t = bpf_map_lookup_elem(&tasks, &zero);

	if (!t)
		return 0;
	*(__u64 *)(t->bytes + bpf_core_field_offset(struct task_struct, start_boottime)) = r->born;
	*(__u64 *)(t->bytes + bpf_core_field_offset(struct task_struct, thread.fsbase)) = r->fsbase;
	*(int *)(t->bytes + bpf_core_field_offset(struct task_struct, pid)) = r->pid + 1; /* not the main thread */
	*(int *)(t->bytes + bpf_core_field_offset(struct task_struct, tgid)) = r->pid;
	*(__u64 *)(t->bytes + bpf_core_field_offset(struct task_struct, thread_pid)) = (__u64)(t->bytes + FAKE_PID);
	*(__u32 *)(t->bytes + FAKE_PID + bpf_core_field_offset(struct pid, level)) = 1;
	*(int *)(t->bytes + FAKE_PID + bpf_core_field_offset(struct pid, numbers) + bpf_core_type_size(struct upid)) = r->own_tid;
	return (struct task_struct *)t;
}

static __always_inline void begin_sample(struct scratch *s, const struct request *r)
{
	s->sample.header.kind = EVENT_SAMPLE;
	s->sample.flags = 0;
	s->sample.end = END_NONE;
	s->sample.class_epoch = s->sample.attachment = 0;
	s->sample.kernel_frames = 0;
	s->sample.header.start = 0; /* processes are told apart by pid and exec */
	s->sample.header.exec = r->exec;
	s->regs = (struct user_registers){
		.pc = r->pc, .sp = r->sp, .bp = r->bp, .r13 = r->r13, .rbx = r->rbx, .thread = r->thread,
		.goroutine = r->goroutine,
	};
}

/* Whether a code segment is that of 64-bit code. */
SEC("syscall")
int long_mode(struct request *r)
{
	return is_64bit_code(r->begin);
}

/* A whole walk from the request's registers; its sample is in the samples map. */
SEC("syscall")
int walk(struct request *r)
{
	struct hotspot_process *vm;
	struct task_struct *task = fake_task(r);
	struct scratch *s = this_scratch();
	__u32 zero = 0, pid = r->pid;
	struct record *out = bpf_map_lookup_elem(&samples, &zero);
	__u64 begin;

	if (!task || !s || !out)
		return -1;
	begin = bpf_ktime_get_ns();
	begin_sample(s, r);
	vm = bpf_map_lookup_elem(&processes, &pid);
	begin_walks(s, vm, task, r->tid);
	s->start.looked = begin - r->stalled;
	s->start.deadline = r->walk_ns ? s->start.looked + r->walk_ns : ~0ull;
	walk_user(s, vm, MAX_USER_FRAMES, 0);
	r->ns = bpf_ktime_get_ns() - begin;
	return bpf_probe_read_kernel(&out->sample, sizeof(out->sample), &s->sample);
}

/* As much of the stack as the mode wants, and its tail. Returns 0; r->len is the size of the record. */
SEC("syscall")
int context(struct request *r)
{
	struct hotspot_process *vm;
	struct task_struct *task = fake_task(r);
	struct scratch *s = this_scratch();
	__u32 zero = 0, pid = r->pid, n;
	struct record *out = bpf_map_lookup_elem(&samples, &zero);
	__u64 begin;

	if (!task || !s || !out)
		return -1;
	begin = bpf_ktime_get_ns();
	begin_sample(s, r);
	vm = bpf_map_lookup_elem(&processes, &pid);
	take_context(s, vm, task, pid, r->tid);
	n = s->sample.user_frames;
	r->len = offsetof(struct sample, frames) + 8 * n + append_tail(s, n, 0);
	end_context(s, r->lost);
	r->ns = bpf_ktime_get_ns() - begin;
	return bpf_probe_read_kernel(out, sizeof(*out), &s->sample);
}

/* The record of a whole stack, as a tick writes it, of a thread whose name is in r->begin. Returns 0; r->len is its size. */
SEC("syscall")
int intern(struct request *r)
{
	struct hotspot_process *vm;
	struct task_struct *task = fake_task(r);
	struct scratch *s = this_scratch();
	__u32 zero = 0, pid = r->pid, n, size;
	struct record *out = bpf_map_lookup_elem(&samples, &zero);
	void *record;
	__u64 begin;

	if (!task || !s || !out)
		return -1;
	begin = bpf_ktime_get_ns();
	begin_sample(s, r);
	s->sample.header.pid = pid;
	s->sample.header.tid = r->tid;
	__builtin_memcpy(s->sample.comm, &r->begin, sizeof(r->begin));
	__builtin_memset(s->sample.comm + 8, 0, 8);
	vm = bpf_map_lookup_elem(&processes, &pid);
	begin_walks(s, vm, task, r->tid);
	s->sample.class_epoch = r->words;
	walk_user(s, vm, MAX_USER_FRAMES, 0);
	refer();
	n = s->sample.user_frames;
	record = &s->sample;
	size = offsetof(struct sample, frames) + 8 * n;
	if (s->stack.root && s->stack.base == NO_SUFFIX)
		size += append_root(s, n);
	if (s->stack.root && s->stack.base != NO_SUFFIX) {
		shorten();
		record = short_record(s);
		size -= offsetof(struct sample, frames) - sizeof(struct short_sample);
	}
	if (s->stack.root && !r->lost)
		keep_suffixes();
	r->len = size;
	r->ns = bpf_ktime_get_ns() - begin;
	return bpf_probe_read_kernel(out, offsetof(struct sample, frames) + 8 * (MAX_USER_FRAMES + 1), record);
}

/* Returns the enum leaf_rule for pc in code that begins at begin. */
SEC("syscall")
int leaf(struct request *r)
{
	return leaf_rule(r->pc, r->begin, r->complete);
}

/* Returns how many words above sp the first return address is, or -1. */
SEC("syscall")
int scan(struct request *r)
{
	struct scratch *s = this_scratch();
	__u32 pid = r->pid;

	if (!s)
		return -2;
	s->start.scan_left = SCAN_BUDGET;
	return find_return(bpf_map_lookup_elem(&processes, &pid), r->sp, r->words);
}

/* Returns 0 and describes the blob around pc, or an enum walk_end. */
SEC("syscall")
int find(struct request *r)
{
	struct scratch *s = this_scratch();
	__u32 pid = r->pid;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	int err;

	if (!s)
		return -1;
	err = segment_find(vm, r->pc);
	if (err)
		return err;
	if (!vm)
		return -1; /* never: for the verifier */
	r->blob_begin = vm->code_low + s->found.begin;
	r->blob_kind = s->found.kind;
	r->blob_frame = s->found.frame;
	r->blob_complete = s->found.complete;
	r->blob_id = s->found.compile_id;
	r->blob_deopt = s->found_rest.deopt;
	r->blob_deopt_mh = s->found_rest.deopt_mh;
	return 0;
}

/* Covers len bytes at sp of a stack that ends at base, and reads the last word of them. Returns 0 if that worked. */
SEC("syscall")
int cover(struct request *r)
{
	struct scratch *s = this_scratch();

	if (!s)
		return -1;
	s->stackcopy_low = s->stackcopy_len = 0;
	s->start.chunk = STACKCOPY_CHUNK;
	if (stackcopy_cover(s, r->base, r->sp, r->len))
		return 1;
	r->stackcopy_len = s->stackcopy_len;
	r->word = stackcopy_word(s, r->sp + r->len - 8);
	return 0;
}

/* Returns 0 and the JavaThread, or 1 if the task is none. */
SEC("syscall")
int thread(struct request *r)
{
	struct scratch *s = this_scratch();
	struct task_struct *task = fake_task(r);
	__u32 pid = r->pid;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	struct java_thread *t;

	if (!s || !task || !vm)
		return -1;
	t = current_java_thread(vm, s, task, r->tid, r->thread);
	if (!t)
		return 1;
	r->java_thread = t->thread;
	r->stack_base = t->stack_base;
	return 0;
}
