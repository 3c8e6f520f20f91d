/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A hit of a breakpoint as a program of its own, for tests only. A syscall program runs on the
 * thread that asks for it: the test plays the guest, with registers and memory of its own.
 */
#include "call/listener.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct listener_request {
	__u64 pc, ra, sp, bp, thread; /* struct entry_registers */
};

struct listener_request *export_listener_request __attribute__((unused));
struct listener_watch *export_listener_watch __attribute__((unused));
struct watch *export_watch __attribute__((unused));
struct listener_hit *export_listener_hit __attribute__((unused));

SEC("syscall")
int play_hit(struct listener_request *q)
{
	struct entry_registers r = {.pc = q->pc, .ra = q->ra, .sp = q->sp, .bp = q->bp, .thread = q->thread};

	listener_hit((struct task_struct *)bpf_get_current_task_btf(), bpf_get_current_pid_tgid() >> 32, &r);
	return 0;
}
