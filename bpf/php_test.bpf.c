//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of a burst in PHP as programs of their own, for tests only. A syscall program runs on the thread that asks
 * for it: the test plays the guest, its structures included.
 */
#include "php.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct php_request {
	__u64 now;    /* tick, hit */
	__u64 frame;  /* caller, enter */
	__u64 func;   /* caller, enter: answer */
	__u32 line;   /* caller: answer */
	__u32 answer; /* hit: it is a sample; caller: there is one */
};

struct php_request *export_php_request __attribute__((unused));
struct php_notice *export_php_notice __attribute__((unused));

#define CURRENT_TASK ((struct task_struct *)bpf_get_current_task_btf())
#define CURRENT_ID bpf_get_current_pid_tgid()

SEC("syscall")
int php_play_tick(struct php_request *r)
{
	__u32 pid = CURRENT_ID >> 32;
	struct php_guest *g = bpf_map_lookup_elem(&php_guests, &pid);

	if (g)
		php_tick_guest(g, pid, (__u32)CURRENT_ID, r->now);
	return 0;
}

SEC("syscall")
int php_play_hit(struct php_request *r)
{
	__u32 pid = CURRENT_ID >> 32;
	struct php_guest *g = bpf_map_lookup_elem(&php_guests, &pid);

	r->answer = 0;
	if (!g) {
		php_stray(pid, 0, r->now);
	} else if (!g->left) {
		php_refuse(g, pid);
	} else {
		php_gap(g, CURRENT_TASK, r->now);
		r->answer = php_take(g, pid);
		php_leave(g, CURRENT_TASK, r->now);
	}
	return 0;
}

SEC("syscall")
int php_play_caller(struct php_request *r)
{
	struct php_caller caller = {};

	r->answer = php_caller_of(r->frame, &caller);
	r->func = caller.func;
	r->line = caller.line;
	return 0;
}

/* A call, both ways: sent and counted. */
SEC("syscall")
int php_play_enter(struct php_request *r)
{
	__u32 pid = CURRENT_ID >> 32, zero = 0;
	struct php_guest *g = bpf_map_lookup_elem(&php_guests, &pid);
	struct php_probe *probe = bpf_map_lookup_elem(&php_probes, &zero);
	struct php_caller caller = {};

	if (!g || !probe)
		return 0;
	r->func = php_entered(CURRENT_TASK, probe, r->frame);
	if (!r->func)
		return 0;
	php_caller_of(r->frame, &caller);
	php_sample(g, CURRENT_TASK, probe, &caller, r->now);
	php_count(g, CURRENT_TASK, probe, r->func, &caller);
	return 0;
}
