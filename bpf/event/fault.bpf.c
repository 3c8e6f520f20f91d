/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Perf events: page faults with the address that was touched, and overflows of the CPU's own
 * counters. Programs of perf events are not preempted, unlike those of probes, so the two kinds
 * cannot share a program that walks. That is why these have an object of their own.
 */
#include "event/observe.bpf.h"
#include "kernel/registers.bpf.h"
#include "kernel/ringwakeup.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline struct scratch *begin_event(struct tick_context *ctx, __u8 what, __u32 probe)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u64 id = bpf_get_current_pid_tgid();
	struct scratch *s;
	__u32 every;

	if (!(__u32)id || (task->flags & PF_KTHREAD) || !chosen(id >> 32))
		return 0;
	every = drawn_weight(probe);
	if (!every)
		return 0;
	s = begin_observation(what, probe, every);
	if (s && (only_in_kernel(task) || !read_registers(s, ctx, task, in_kernel(ctx))))
		s->watch.bare = 1;
	return s;
}

/* The user's registers into the text: where compiled code has the object whose field it touches. */
static __always_inline void tell_registers(struct scratch *s)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();

	if (!bpf_probe_read_kernel(s->seen.text, sizeof(struct registers), (void *)bpf_task_pt_regs(task)))
		s->seen.o.text_len = sizeof(struct registers);
}

/* What is at the address is looked up by user space, which must come before the object moves. */
SEC("perf_event")
int page_fault(struct tick_context *ctx)
{
	struct scratch *s = begin_event(ctx, OBSERVED_FAULT, PROBE_FAULT);
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct hotspot_heap *h;

	if (!s)
		return 0;
	s->seen.o.count = 2;
	s->seen.o.values[0] = ctx->addr;
	s->seen.o.values[1] = s->watch.bare ? 0 : s->regs.pc;
	if (!s->watch.bare)
		tell_registers(s);
	h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);
	if (h)
		s->seen.o.place = place_of(h, ctx->addr);
	write_observation(s, &events, urgent_wakeup_flags());
	return 0;
}

/* The period of an event shows which of the two counters overflowed. */
const volatile __u64 instructions_period = 0;

SEC("perf_event")
int overflow(struct tick_context *ctx)
{
	__u64 period = ctx->sample_period;
	struct scratch *s;

	s = begin_event(ctx, OBSERVED_OVERFLOW, period == instructions_period ? PROBE_INSTRUCTIONS : PROBE_CYCLES);
	if (!s)
		return 0;
	s->seen.o.count = 1;
	s->seen.o.values[0] = period;
	write_observation(s, &nmi_events, nmi_wakeup_flags());
	return 0;
}
