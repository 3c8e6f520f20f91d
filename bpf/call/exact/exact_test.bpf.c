/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Exact tracing as programs of their own, for tests only. A syscall program runs in the process
 * that asks for it, so that the test's thread plays the guest's, and its memory the guest's stack
 * and code. The request is the registers.
 */
#include "call/exact/exactobject.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct registers *export_registers __attribute__((unused));

SEC("syscall")
int enter(struct registers *r)
{
	return method_entered(r);
}

SEC("syscall")
int leave(struct registers *r)
{
	return method_left(r);
}

SEC("syscall")
int make_object(struct registers *r)
{
	return object_made(r, 0);
}

SEC("syscall")
int end_thread(struct registers *r)
{
	thread_ended();
	return 0;
}
