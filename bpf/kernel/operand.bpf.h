/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Values of a probe's arguments, from where its USDT note says they are. */
#pragma once

#include "kernel/kernel.h"
#include "record/operand.h"

#include <bpf/bpf_tracing.h>

/*
 * The guest's register at that byte offset of struct registers, as the kernel saved it when the
 * probe was hit.
 */
static __always_inline __u64 guest_register(struct task_struct *task, __u32 offset)
{
	__u64 v = 0;

	if (offset <= sizeof(struct registers) - sizeof(v))
		bpf_probe_read_kernel(&v, sizeof(v), (void *)bpf_task_pt_regs(task) + offset);
	return v;
}

/* The low bytes of v, as many as size says, extended to 64 bits. */
static __always_inline __u64 extended(__u64 v, __s8 size)
{
	switch (size) {
	case 4: return (__u32)v;
	case -4: return (__s64)(__s32)v;
	case 2: return (__u16)v;
	case -2: return (__s64)(__s16)v;
	case 1: return (__u8)v;
	case -1: return (__s64)(__s8)v;
	}
	return v;
}

/* The value of an argument, extended to 64 bits. */
static __noinline __u64 argument(struct task_struct *task, const struct operand *op)
{
	__u64 v;

	switch (op->kind) {
	case OPERAND_REGISTER:
		v = guest_register(task, op->reg);
		break;
	case OPERAND_MEMORY:
		v = 0;
		bpf_probe_read_user(&v, sizeof(v), (void *)(guest_register(task, op->reg) + op->displacement));
		break;
	default:
		v = op->displacement;
	}
	return extended(v, op->size);
}
