/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The time profile with less than whole stacks: the programs of profile.bpf.c and kerneltick.bpf.c
 * that sample. Each is loaded in place of its namesake there.
 */
#define CONTEXTS
#include "sample/kerneltick.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum context_mode *export_context_mode __attribute__((unused));
enum link_tags *export_link_tags __attribute__((unused));
struct shared_stack *export_shared_stack __attribute__((unused));
struct chain_rate *export_chain_rate __attribute__((unused));

/* A tick of a CPU's sampling event. */
SEC("perf_event")
int tick(struct tick_context *ctx)
{
	sample_event(ctx);
	return 0;
}

/* The kernel charges a tick to the current task. It runs in the timer's hard interrupt. */
SEC("fentry/update_process_times")
int BPF_PROG(charge_tick, int user_tick)
{
	take_tick(ctx, user_tick);
	return 0;
}

/*
 * The same where functions of the kernel cannot be traced, a little earlier: a timer of this CPU
 * expires.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(expire_tick, struct hrtimer *timer)
{
	take_expiry(ctx, timer);
	return 0;
}
