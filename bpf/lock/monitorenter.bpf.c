/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Acquisitions of monitors that nobody waits for: hardware breakpoints where compiled code enters a
 * monitor. They have a stream, counters and working memory of their own, and are no part of the
 * agent's accounts of samples.
 */
#include "lock/monitorenter.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
struct enter_watch *export_enter_watch __attribute__((unused));

/* Returns 1 always: the kernel counts only such hits against the breakpoint's limit. */
SEC("perf_event")
int monitor_enter(struct tick_context *ctx)
{
	enter_hit(ctx);
	return 1;
}
