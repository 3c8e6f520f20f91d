/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a HotSpot VM announces of its code, through its USDT probes. These programs are uprobes:
 * they can be preempted by another thread that hits one on the same CPU. So they claim the memory
 * in which they build a record. They do not reserve one in the stream: a thread that lost its CPU
 * before it submitted it would hold up everything behind it. Kernels since 6.13 give a function
 * with 64 bytes of stack or more a stack per CPU: what is not inlined here is so to stay below
 * that.
 */
#include "walk/codecache.bpf.h"
#include "kernel/maps.bpf.h"
#include "kernel/operand.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* bpf2go exports what a variable names. */
enum operand_kind *export_operand_kind __attribute__((unused));
struct code_load *export_code_load __attribute__((unused));

/* key: attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBE_SITES);
	__type(key, __u32);
	__type(value, struct load_site);
} load_sites SEC(".maps");

#define DRAFTS 64     /* a power of two: threads that announce code at once, those among them that were preempted */
#define DRAFT_TRIES 8 /* of these, how many a thread looks at */

struct draft {
	__u32 claimed; /* 1 while a program builds a record here */
	__u32 pad;
	struct code_load load;
};

/* key: tid, folded, or one of the next */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DRAFTS);
	__type(key, __u32);
	__type(value, struct draft);
} drafts SEC(".maps");

/* A draft that nobody has, 0 if none was found. */
static __always_inline struct draft *claim_draft(void)
{
	__u32 first = (__u32)bpf_get_current_pid_tgid();

	for (__u32 i = 0; i < DRAFT_TRIES; i++) {
		__u32 key = (first + i) & (DRAFTS - 1);
		struct draft *d = bpf_map_lookup_elem(&drafts, &key);

		if (d && !__sync_lock_test_and_set(&d->claimed, 1))
			return d;
	}
	return 0;
}

/* Copies a string of the guest, cut at max; returns the bytes copied. */
static __always_inline __u16 copy_string(__u8 *to, __u32 max, struct task_struct *task, const struct operand *where,
					 const struct operand *length)
{
	__u64 from = argument(task, where), len = argument(task, length);

	if (len > max)
		len = max;
	if (bpf_probe_read_user(to, len, (void *)from))
		return 0;
	return len;
}

/* The compile id of the code at begin; 0 if the VM is not attached. */
static __noinline __u32 compile_id(__u32 pid, __u64 begin)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	__u64 blob = vm ? blob_at(vm, begin) : 0;

	return blob ? read_int(blob + vm->blob_compile_id) : 0;
}

static __always_inline struct epochs *my_epochs(__u32 pid)
{
	struct hotspot_process *vm = bpf_map_lookup_elem(&processes, &pid);
	__u32 slot;

	if (!vm)
		return 0;
	slot = vm->slot;
	return bpf_map_lookup_elem(&epochs, &slot);
}

/*
 * hotspot:compiled__method__load. Also from VMs that are not attached: that is how a new one is
 * noticed early.
 */
SEC("uprobe")
int load(void *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, key = bpf_get_attach_cookie(ctx);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct load_site *site;
	struct code_load *e;
	struct draft *d;

	if (!chosen(pid))
		return 0;
	site = bpf_map_lookup_elem(&load_sites, &key);
	if (!site)
		return 0;
	count(EVENTS_ATTEMPTED, 1);
	d = claim_draft();
	if (!d) {
		count(EVENTS_DROPPED_BUSY, 1);
		return 0;
	}
	e = &d->load;
	fill_header(&e->header, task, EVENT_CODE_LOAD, bpf_ktime_get_ns());
	e->begin = argument(task, &site->code);
	e->size = argument(task, &site->size);
	e->compile_id = compile_id(pid, e->begin);
	e->pad = 0;
	e->class_len = copy_string(e->class_name, MAX_CLASS_NAME, task, &site->class_name, &site->class_len);
	e->name_len = copy_string(e->method_name, MAX_METHOD_NAME, task, &site->method_name, &site->name_len);
	e->signature_len = copy_string(e->signature, MAX_SIGNATURE, task, &site->signature, &site->signature_len);
	if (bpf_ringbuf_output(&events, e, sizeof(*e), BPF_RB_NO_WAKEUP))
		count(EVENTS_DROPPED_RING_FULL, 1);
	else
		count(EVENTS_DELIVERED, 1);
	__sync_lock_test_and_set(&d->claimed, 0);
	return 0;
}

/* hotspot:compiled__method__unload comes before the code's memory can be used again. */
SEC("uprobe")
int code_unload(void *ctx)
{
	struct epochs *e = my_epochs(bpf_get_current_pid_tgid() >> 32);

	if (e) {
		__sync_fetch_and_add(&e->code, 1);
		count(CODE_UNLOADS, 1);
	}
	return 0;
}

/* hotspot:class__unloaded: Method structures are given back after it. */
SEC("uprobe")
int class_unload(void *ctx)
{
	struct epochs *e = my_epochs(bpf_get_current_pid_tgid() >> 32);

	if (e) {
		__sync_fetch_and_add(&e->classes, 1);
		__sync_fetch_and_add(&e->code, 1);
		count(CODE_UNLOADS, 1);
	}
	return 0;
}
