/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of a burst as programs of their own, for tests only. A syscall program runs on the
 * thread that asks for it: the test plays the guest, its stub and its page included.
 */
#include "call/burst.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct burst_request {
	__u64 callee, caller; /* call */
	__u64 slot;	      /* thread */
	__u32 random;	      /* tick */
	__u32 pad;
};

struct burst_request *export_burst_request __attribute__((unused));
struct vmprof_page *export_vmprof_page __attribute__((unused));
struct vmprof_slot *export_vmprof_slot __attribute__((unused));

#define CURRENT_TASK ((struct task_struct *)bpf_get_current_task_btf())
#define CURRENT_PID (bpf_get_current_pid_tgid() >> 32)

SEC("syscall")
int play_tick(struct burst_request *r)
{
	burst_tick(CURRENT_TASK, CURRENT_PID, r->random, bpf_ktime_get_ns());
	return 0;
}

SEC("syscall")
int play_thread(struct burst_request *r)
{
	burst_thread_begin(CURRENT_TASK, CURRENT_PID, r->slot);
	return 0;
}

SEC("syscall")
int play_thread_end(struct burst_request *r)
{
	burst_thread_end(CURRENT_TASK);
	return 0;
}

SEC("syscall")
int play_call(struct burst_request *r)
{
	burst_call(CURRENT_TASK, CURRENT_PID, bpf_ktime_get_ns(), r->callee, r->caller);
	return 0;
}
