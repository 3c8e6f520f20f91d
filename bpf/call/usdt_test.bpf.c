/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of a burst at a USDT probe as programs of their own, for tests only. A syscall program
 * runs on the thread that asks for it: the test plays the guest, PHP's structures included.
 */
#include "call/usdt.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct usdt_request {
	__u64 now;    /* tick, hit */
	__u64 frame;  /* caller, enter */
	__u64 func;   /* caller, enter: answer */
	__u32 line;   /* caller: answer */
	__u32 answer; /* hit: it is a sample; caller: there is one */
};

struct usdt_request *export_usdt_request __attribute__((unused));
struct usdt_notice *export_usdt_notice __attribute__((unused));

#define CURRENT_TASK ((struct task_struct *)bpf_get_current_task_btf())
#define CURRENT_ID bpf_get_current_pid_tgid()

SEC("syscall")
int usdt_play_tick(struct usdt_request *r)
{
	__u32 pid = CURRENT_ID >> 32;
	struct usdt_guest *g = bpf_map_lookup_elem(&usdt_guests, &pid);

	if (g)
		usdt_tick_guest(g, pid, r->now);
	return 0;
}

SEC("syscall")
int usdt_play_hit(struct usdt_request *r)
{
	__u32 pid = CURRENT_ID >> 32;
	struct usdt_guest *g = bpf_map_lookup_elem(&usdt_guests, &pid);

	r->answer = 0;
	if (!g)
		return 0;
	r->answer = usdt_take(g, CURRENT_TASK, r->now);
	usdt_leave(g, CURRENT_TASK, r->now);
	return 0;
}

SEC("syscall")
int usdt_play_caller(struct usdt_request *r)
{
	struct php_caller caller = {};

	r->answer = php_caller_of(r->frame, &caller);
	r->func = caller.func;
	r->line = caller.line;
	return 0;
}

/* A call of PHP, both ways: sent and counted. */
SEC("syscall")
int usdt_play_enter(struct usdt_request *r)
{
	__u32 pid = CURRENT_ID >> 32, zero = 0;
	struct usdt_guest *g = bpf_map_lookup_elem(&usdt_guests, &pid);
	struct usdt_probe *probe = bpf_map_lookup_elem(&usdt_probes, &zero);
	struct php_caller caller = {};

	if (!g || !probe)
		return 0;
	r->func = php_entered(CURRENT_TASK, probe, r->frame);
	if (!r->func)
		return 0;
	php_caller_of(r->frame, &caller);
	usdt_sample(g, CURRENT_TASK, probe, &caller, r->now);
	usdt_count(g, CURRENT_TASK, probe, r->func, &caller);
	return 0;
}
