/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Exact tracing of a HotSpot VM that was started with -XX:+DTraceMethodProbes: such a VM calls
 * SharedRuntime::dtrace_method_entry(JavaThread*, Method*) and dtrace_method_exit at every method's
 * begin and end, of native and of inlined methods too. Every call is counted here; nothing is
 * sampled, and nothing is sent. One that was also started with -XX:+DTraceAllocProbes calls
 * SharedRuntime::dtrace_object_alloc for every object.
 */
#include "call/exact/exactobject.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum exact_counter *export_exact_counter __attribute__((unused));
struct new_method *export_new_method __attribute__((unused));
struct exact_node *export_exact_node __attribute__((unused));
struct exact_edge *export_exact_edge __attribute__((unused));
struct exact_method *export_exact_method __attribute__((unused));
struct exact_thread *export_exact_thread __attribute__((unused));
struct exact_objects_key *export_exact_objects_key __attribute__((unused));
struct exact_objects *export_exact_objects __attribute__((unused));

SEC("uprobe")
int method_entry(struct registers *ctx)
{
	return method_entered(ctx);
}

SEC("uprobe")
int method_return(struct registers *ctx)
{
	return method_left(ctx);
}

/* At the entry of SharedRuntime::dtrace_object_alloc(oopDesc*, ...). */
SEC("uprobe")
int object(struct registers *ctx)
{
	return object_made(ctx, 0);
}

/* At the entry of SharedRuntime::dtrace_object_alloc(JavaThread*, oopDesc*, ...). */
SEC("uprobe")
int object_by(struct registers *ctx)
{
	return object_made(ctx, 1);
}

/* A thread's number may be another one's soon. */
SEC("tp_btf/sched_process_exit")
int thread_exit(void *ctx)
{
	thread_ended();
	return 0;
}
