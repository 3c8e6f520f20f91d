/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Hits of breakpoints on followed code as a program of its own, for tests only: the test's memory
 * is the stack.
 */
#include "call/timing/invocation.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct invocation_request {
	__u64 pc, sp;
	__u64 ran; /* ns */
	__u64 now; /* ns */
};

struct invocation_request *export_invocation_request __attribute__((unused));
struct followed *export_followed __attribute__((unused));
struct open_invocation *export_open_invocation __attribute__((unused));
struct invocation_counts *export_invocation_counts __attribute__((unused));

SEC("syscall")
int play_hit(struct invocation_request *r)
{
	invocation_hit(r->pc, r->sp, r->ran, r->now);
	return 0;
}
