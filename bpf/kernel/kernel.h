/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel structures that the programs read, with only the fields they use. Offsets are
 * relocated against the running kernel's BTF at load; names and types are the kernel's own
 * (include/linux/sched.h).
 */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */
#define PF_IDLE 0x00000002
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010	  /* io_uring's, since 5.12 */
#define PF_USER_WORKER 0x00004000 /* since 6.4: io_uring's, too; the bit means nothing from 5.17 to 6.3 */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase; /* the thread pointer: TLS hangs on it */
};
#endif

#if defined(__TARGET_ARCH_arm64)
struct user_thread {
	unsigned long tp_value; /* the thread pointer */
};

struct thread_struct {
	struct user_thread uw;
};
#endif

struct mm_struct {
	unsigned long start_stack; /* highest address of the main thread's */
	unsigned long exec_vm;	   /* pages of mappings that can be executed and not written */
};

struct atomic_count {
	int counter;
};

struct signal_struct {
	struct atomic_count live; /* threads of the process that have not exited */
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;    /* of the pid namespace that it was made in: 0 is the machine's */
	struct upid numbers[]; /* in that one and in those around it */
};

struct task_struct {
	unsigned int flags;
	int pid, tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	__u64 start_boottime; /* ns, CLOCK_BOOTTIME */
	__u64 self_exec_id;   /* grows by one with every exec */
	char comm[16];
	struct mm_struct *mm;
	void *worker_private; /* 0 in threads that execute user code */
	struct thread_struct thread;
};

struct kernel_clone_args {
	unsigned int user_worker : 1; /* came with PF_USER_WORKER */
};

#pragma clang attribute pop

/*
 * Whether a task never executes user code. The kernel's own threads have no user stack. Workers
 * that it makes for a process, such as those of io_uring, belong to that process and have its
 * memory, but their saved user registers are a copy of their creator's: a walk from there would
 * show where another thread was. Those of io_uring lose their flag when they end.
 */
static __always_inline bool only_in_kernel(const struct task_struct *task)
{
	unsigned int worker = bpf_core_field_exists(struct kernel_clone_args, user_worker) ?
		PF_USER_WORKER : PF_IO_WORKER;

	return (task->flags & (PF_KTHREAD | worker)) || ((task->flags & PF_EXITING) && task->worker_private);
}

/*
 * The registers a perf_event program gets, as arch/{x86,arm64}/include/uapi/asm/ptrace.h lays them
 * out. The verifier wants whole words, so fields that the kernel splits (cs on FRED machines) are
 * read whole.
 */
#if defined(__TARGET_ARCH_x86)
struct registers {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct registers {
	__u64 regs[31], sp, pc, pstate;
};
#endif

/* The context of a perf_event program (include/uapi/linux/bpf_perf_event.h). */
struct tick_context {
	struct registers regs;
	__u64 sample_period;
	__u64 addr;
};
