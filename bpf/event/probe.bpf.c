/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Events that probes in the guests' libraries report: allocations, exceptions, waits for locks,
 * pauses, write barriers, values. Each kind has programs of its own, which note the observation;
 * observe walks the stack and writes the record (observe.bpf.h).
 */
#define PREEMPTIBLE
#include "event/writebarrier.bpf.h"
#include "event/exception.bpf.h"
#include "event/pause.bpf.h"
#include "event/value.bpf.h"
#include "lock/virtualthread.bpf.h"
#include "kernel/ringwakeup.bpf.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct observation *export_observation __attribute__((unused));
struct probe *export_probe __attribute__((unused));
struct probe_count *export_probe_count __attribute__((unused));
struct stranger *export_stranger __attribute__((unused));
struct hotspot_heap *export_hotspot_heap __attribute__((unused));
struct counted_class *export_counted_class __attribute__((unused));
struct class_count *export_class_count __attribute__((unused));
struct lock_key *export_lock_key __attribute__((unused));
struct lock_wait *export_lock_wait __attribute__((unused));
enum wait_begin *export_wait_begin __attribute__((unused));
struct name_site *export_name_site __attribute__((unused));
struct pause_cause *export_pause_cause __attribute__((unused));
struct ended_thread *export_ended_thread __attribute__((unused));
struct value_operand *export_value_operand __attribute__((unused));
struct probed_value *export_probed_value __attribute__((unused));
struct probed_values *export_probed_values __attribute__((unused));
enum value_form *export_value_form __attribute__((unused));
enum observed *export_observed __attribute__((unused));
enum seen_flags *export_seen_flags __attribute__((unused));
enum heap_place *export_heap_place __attribute__((unused));
enum heap_flags *export_heap_flags __attribute__((unused));
struct virtual_thread *export_virtual_thread __attribute__((unused));
struct unmounted_wait *export_unmounted_wait __attribute__((unused));
enum unmounted_kind *export_unmounted_kind __attribute__((unused));
struct virtual_count *export_virtual_count __attribute__((unused));

int observe(struct registers *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, TAIL_COUNT);
	__uint(key_size, sizeof(__u32));
	__array(values, int (void *));
} tails SEC(".maps") = {
	.values = {[TAIL_OBSERVE] = (void *)&observe},
};

/* Every program ends with a tail call: see observe.bpf.h. */
static __always_inline int go_on(struct registers *ctx, bool seen)
{
	struct scratch *s;

	if (!seen) {
		bpf_tail_call(ctx, &tails, TAIL_NONE);
		return 0;
	}
	bpf_tail_call(ctx, &tails, TAIL_OBSERVE);
	s = this_scratch(); /* never */
	if (s)
		end_observation(s);
	return 0;
}

SEC("uprobe")
int observe(struct registers *ctx)
{
	struct scratch *s = this_scratch();

	if (s) {
		take_registers(s, ctx);
		learn_from(ctx, s);
		write_observation(s, &events, s->seen.o.what == OBSERVED_CARD ? urgent_wakeup_flags() : wakeup_flags());
	}
	return go_on(ctx, false);
}

SEC("uprobe")
int allocation_in_buffer(struct registers *ctx)
{
	return go_on(ctx, see_allocation(ctx, bpf_get_attach_cookie(ctx), false));
}

SEC("uprobe")
int allocation_outside(struct registers *ctx)
{
	return go_on(ctx, see_allocation(ctx, bpf_get_attach_cookie(ctx), true));
}

/* At the entry of Threads::remove(JavaThread*, ...). */
SEC("uprobe")
int thread_removed(struct registers *ctx)
{
	if (!probe_off(bpf_get_attach_cookie(ctx)))
		see_thread_end(parameter(ctx, 0));
	return go_on(ctx, false);
}

/* At the entry of before_exit(JavaThread*, ...). */
SEC("uprobe")
int vm_ends(struct registers *ctx)
{
	if (!probe_off(bpf_get_attach_cookie(ctx)))
		see_vm_end();
	return go_on(ctx, false);
}

/* At the entry of SharedRuntime::dtrace_object_alloc(oopDesc*, ...). */
SEC("uprobe")
int object_allocated(struct registers *ctx)
{
	if (!probe_off(bpf_get_attach_cookie(ctx)))
		count_object(parameter(ctx, 0));
	return go_on(ctx, false);
}

/* At the entry of SharedRuntime::dtrace_object_alloc(JavaThread*, oopDesc*, ...). */
SEC("uprobe")
int object_allocated_by(struct registers *ctx)
{
	if (!probe_off(bpf_get_attach_cookie(ctx)))
		count_object(parameter(ctx, 1));
	return go_on(ctx, false);
}

/* At the entry of JVM_FillInStackTrace(JNIEnv*, jobject). */
SEC("uprobe")
int exception_created(struct registers *ctx)
{
	return go_on(ctx, see_exception(parameter(ctx, 1), bpf_get_attach_cookie(ctx)));
}

/* At the entry of ObjectMonitor::enter. */
SEC("uprobe")
int monitor_enter(struct registers *ctx)
{
	begin_wait(&entering, bpf_get_attach_cookie(ctx), parameter(ctx, 0), 0, return_address(ctx), 0);
	return go_on(ctx, false);
}

/* At the entry of LightweightSynchronizer::enter or ObjectSynchronizer::enter. */
SEC("uprobe")
int lightweight_enter(struct registers *ctx)
{
	begin_wait(&entering, bpf_get_attach_cookie(ctx), parameter(ctx, 0), BEGUN_HANDLE, return_address(ctx), 0);
	return go_on(ctx, false);
}

/* Behind calls of functions that spin: a result above 0, an int or a bool, is success. */
SEC("uprobe")
int monitor_spun(struct registers *ctx)
{
	struct lock_wait *w = this_wait(&entering);

	if (w)
		w->flags |= (signed char)result(ctx) > 0 ? SEEN_CONTENDED | SEEN_SPUN : SEEN_CONTENDED;
	return go_on(ctx, false);
}

/* At the entry of functions of an ObjectMonitor that block. */
SEC("uprobe")
int monitor_blocks(struct registers *ctx)
{
	struct lock_wait *w = this_wait(&entering);

	if (w) {
		w->flags |= SEEN_CONTENDED;
		if (!w->lock)
			want_lock(w, parameter(ctx, 0));
	}
	return go_on(ctx, false);
}

/* At the entry of ObjectMonitor::exit_epilog, before JDK 24 ExitEpilog. */
SEC("uprobe")
int monitor_released(struct registers *ctx)
{
	return go_on(ctx, see_monitor_released(ctx, bpf_get_attach_cookie(ctx)));
}

/* At the entry of the native method Unsafe.unpark. */
SEC("uprobe")
int unparks(struct registers *ctx)
{
	return go_on(ctx, see_unpark(ctx, bpf_get_attach_cookie(ctx)));
}

/* Behind calls of the functions that monitor_enter and lightweight_enter are at. */
SEC("uprobe")
int monitor_entered(struct registers *ctx)
{
	forget_other(bpf_get_attach_cookie(ctx), probed_at(ctx));
	return go_on(ctx, see_monitor(bpf_get_attach_cookie(ctx)));
}

/* Likewise, where monitor_spun and monitor_blocks have no place. */
SEC("uprobe")
int monitor_slept(struct registers *ctx)
{
	forget_other(bpf_get_attach_cookie(ctx), probed_at(ctx));
	note_sleep();
	return go_on(ctx, see_monitor(bpf_get_attach_cookie(ctx)));
}

SEC("uprobe")
int park_begin(struct registers *ctx)
{
	begin_wait(&parked, bpf_get_attach_cookie(ctx), 0, 0, 0, ctx);
	return go_on(ctx, false);
}

SEC("uprobe")
int park_end(struct registers *ctx)
{
	return go_on(ctx, see_park(ctx, bpf_get_attach_cookie(ctx)));
}

/* At the entries of freeze<Config>, the VM's functions for each collector. */
SEC("uprobe")
int virtual_freeze(struct registers *ctx)
{
	return go_on(ctx, see_freeze(bpf_get_attach_cookie(ctx), parameter(ctx, 0)));
}

/*
 * At the entry of Continuation::prepare_thaw(JavaThread*, bool): true if the thread has gone on
 * already, and needs its next frames.
 */
SEC("uprobe")
int virtual_thaw(struct registers *ctx)
{
	return go_on(ctx, !(__u8)parameter(ctx, 1) && see_thaw(bpf_get_attach_cookie(ctx), UNMOUNTED_PARKED,
							       parameter(ctx, 0)));
}

/* At the entries of Config::freeze_preempt(JavaThread*, long*). */
SEC("uprobe")
int virtual_preempt(struct registers *ctx)
{
	return go_on(ctx, see_preemption(bpf_get_attach_cookie(ctx), parameter(ctx, 0)));
}

/* At the entry of ObjectMonitor::vthread_monitor_enter(JavaThread*, ObjectWaiter*). */
SEC("uprobe")
int virtual_preempted(struct registers *ctx)
{
	note_preempted(bpf_get_attach_cookie(ctx), parameter(ctx, 1));
	return go_on(ctx, false);
}

/*
 * At the entry of ThawBase::handle_preempted_continuation: the object's first member is the
 * JavaThread*.
 */
SEC("uprobe")
int virtual_entered(struct registers *ctx)
{
	return go_on(ctx, see_thaw(bpf_get_attach_cookie(ctx), UNMOUNTED_MONITOR, read_word(parameter(ctx, 0))));
}

SEC("uprobe")
int safepoint_begin(struct registers *ctx)
{
	begin_pause(ctx, bpf_get_attach_cookie(ctx));
	return go_on(ctx, false);
}

SEC("uprobe")
int safepoint_end(struct registers *ctx)
{
	return go_on(ctx, see_pause(ctx, bpf_get_attach_cookie(ctx)));
}

SEC("uprobe")
int operation_begin(struct registers *ctx)
{
	note_operation(bpf_get_attach_cookie(ctx));
	return go_on(ctx, false);
}

SEC("uprobe")
int manager_begin(struct registers *ctx)
{
	note_manager(bpf_get_attach_cookie(ctx));
	return go_on(ctx, false);
}

SEC("uprobe")
int collection_begin(struct registers *ctx)
{
	note_collection();
	return go_on(ctx, false);
}

SEC("tp_btf/sched_process_exit")
int thread_exit(void *ctx)
{
	forget_thread();
	return 0;
}

/* At the jump or call in write_ref_field_post_entry to G1DirtyCardQueueSet::enqueue. */
SEC("uprobe")
int card_enqueued(struct registers *ctx)
{
	return go_on(ctx, see_card(ctx, bpf_get_attach_cookie(ctx)));
}

/* At any instruction: what user space asks for. */
SEC("uprobe")
int value_probe(struct registers *ctx)
{
	return go_on(ctx, see_values(bpf_get_attach_cookie(ctx)));
}
