/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The time profile at the kernel's own tick. Only one of the two programs is loaded. */
#include "sample/kerneltick.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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
