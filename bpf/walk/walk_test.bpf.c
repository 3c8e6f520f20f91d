/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The walker's parts as programs of their own, for tests only. */
#include "sample/intern.bpf.h"
#include "kernel/registers.bpf.h"
#include "walk/walk_test.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct request *export_request __attribute__((unused));
enum blob_kind *export_blob_kind __attribute__((unused));

/* Whether a code segment is that of 64-bit code. */
SEC("syscall")
int long_mode(struct request *r)
{
	return is_64bit_code(r->begin);
}

/*
 * A whole walk from the request's registers; its sample is in the samples map, and r->len the size
 * of its record.
 */
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
	walk_user(s, vm);
	r->len = offsetof(struct sample, frames) + 8 * (__u32)s->sample.user_frames;
	r->ns = bpf_ktime_get_ns() - begin;
	return bpf_probe_read_kernel(&out->sample, sizeof(out->sample), &s->sample);
}

/*
 * The record of a whole stack, as a tick writes it, of a thread whose name is in r->begin. Returns
 * 0; r->len is its size.
 */
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
	walk_user(s, vm);
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
	s->start.lookup_left = LOOKUP_BUDGET;
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

/*
 * Covers len bytes at sp of a stack that ends at base, and reads the last word of them. Returns 0
 * if that worked.
 */
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
