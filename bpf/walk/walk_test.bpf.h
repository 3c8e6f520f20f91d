/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What programs for tests share that call parts of the walker. A syscall program runs in the
 * process that asks for it, so memory of the test plays the guest's. The task is played too: where
 * a kernel's task_struct has the fields that the walker reads, a map's value has those of the
 * request.
 */
#pragma once

#include "kernel/scratch.bpf.h"

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
	__u64 syscall, argument;    /* of the system call that the thread is in; 0 for none */
	__u64 start;		    /* walk: of the process; 0: long ago */

	/* answers */
	__u64 java_thread, stack_base, word, stackcopy_len, ns;
	__u64 blob_begin;
	__u32 blob_kind, blob_frame, blob_complete, blob_id, blob_deopt, blob_deopt_mh;
};

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
	*(int *)(t->bytes + FAKE_PID + bpf_core_field_offset(struct pid, numbers) + bpf_core_type_size(struct upid)) =
		r->own_tid;
	return (struct task_struct *)t;
}

static __always_inline void begin_sample(struct scratch *s, const struct request *r)
{
	s->sample.header.kind = EVENT_SAMPLE;
	s->sample.flags = 0;
	s->sample.end = END_NONE;
	s->sample.class_epoch = s->sample.attachment = 0;
	s->sample.kernel_frames = 0;
	s->sample.header.start = r->start; /* processes are told apart by pid and exec */
	s->sample.header.pid = r->pid;
	s->sample.header.exec = r->exec;
	s->regs = (struct user_registers){
		.pc = r->pc, .sp = r->sp, .bp = r->bp, .r13 = r->r13, .rbx = r->rbx, .thread = r->thread,
		.goroutine = r->goroutine,
	};
	s->saved.ip = s->saved.orig_ax = 0;
	if (r->syscall) {
		s->saved.ip = r->pc;
		s->saved.sp = r->sp;
		s->saved.orig_ax = r->syscall;
		s->saved.di = r->argument;
	}
}
