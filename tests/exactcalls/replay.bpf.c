//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Counts the calls that arrive at hardware breakpoints, by where they were made. */
#include "call/callsite.bpf.h"
#include "kernel/maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct replay_call {
	__u64 entry;  /* address of the callee's first instruction */
	__u64 caller; /* frame */
	__u32 class_epoch; /* interpreted callers are valid for one epoch */
	__u32 pad;
};

/* Calls by callee and caller: of three callees at a time, with some hundred callers. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct replay_call);
	__type(value, __u64);
} replay_calls SEC(".maps");

volatile __u64 replay_lost; /* calls without room */

/*
 * Always returns 0: such hits do not count towards the breakpoint's limit, so that it stays until
 * it is removed.
 */
SEC("perf_event")
int replay_breakpoint(struct tick_context *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
#if defined(__TARGET_ARCH_x86)
	struct entry_registers r = {
		.pc = ctx->regs.ip, .ra = read_word(ctx->regs.sp), .sp = ctx->regs.sp + 8, .bp = ctx->regs.bp,
	};
#elif defined(__TARGET_ARCH_arm64)
	struct entry_registers r = {
		.pc = ctx->regs.pc, .ra = ctx->regs.regs[30], .sp = ctx->regs.sp, .bp = ctx->regs.regs[29],
	};
#endif
	struct call_places at;
	struct replay_call call = { .entry = r.pc };
	struct epochs *e;
	__u64 *n, none = 0;
	__u32 slot;

	if (!vm)
		return 0;
	slot = vm->slot;
	e = bpf_map_lookup_elem(&epochs, &slot);
	if (e)
		call.class_epoch = e->classes;
	call.caller = caller_frame(vm, &r, &at);
	n = bpf_map_lookup_elem(&replay_calls, &call);
	if (!n) {
		bpf_map_update_elem(&replay_calls, &call, &none, BPF_NOEXIST); /* or another thread did */
		n = bpf_map_lookup_elem(&replay_calls, &call);
	}
	__sync_fetch_and_add(n ? n : &replay_lost, 1);
	return 0;
}
