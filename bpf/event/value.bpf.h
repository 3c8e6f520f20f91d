/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Values that user space asks for at a probe, which may be at any instruction. A value begins as an
 * operand, as USDT notes write them: a register, a word of memory, a constant. From there up to two
 * pointers are followed, and the result is recorded as a number or as a text. A value that cannot
 * be read, such as one on a page that is not in memory, is marked in observation.failed.
 */
#pragma once

#include "event/allocation.bpf.h"
#include "kernel/operand.bpf.h"

#define MAX_FOLLOWED 2

/* Where a value begins. An operand as elsewhere, and besides: an index, or no base. */
struct value_operand {
	__s64 displacement; /* bytes; or the constant */
	__u8 kind;	    /* enum operand_kind */
	__u8 reg, index;    /* byte offsets in struct pt_regs */
	__u8 scale;	    /* of the index; 0: there is none */
	__s8 size;	    /* bytes, negative if signed */
	__u8 absolute;	    /* MEMORY: 1 if reg does not count */
	__u8 pad[2];
};

enum value_form {
	VALUE_NUMBER = 0,
	VALUE_TEXT,   /* bytes at an address */
	VALUE_SYMBOL, /* HotSpot: a Symbol */
	VALUE_KLASS,  /* HotSpot: the name of a Klass */
	VALUE_CLASS,  /* HotSpot: the name of an object's Klass */
};

/*
 * x = base; x = *(x + offsets[i]) for each pointer followed; x + offset is the number, or the
 * address of the text.
 */
struct probed_value {
	struct value_operand base;
	struct value_operand length; /* TEXT: of how many bytes; OPERAND_NONE: a zero byte ends it */
	__s32 offsets[MAX_FOLLOWED], offset; /* bytes */
	__u8 followed; /* pointers */
	__s8 size;     /* of the last word read through a pointer, or without one, of base: bytes, negative if signed */
	__u8 form;     /* enum value_form */
	__u8 share;    /* texts: how many are to come, this one included: each has that part of the room left */
};

struct probed_values {
	__u32 count; /* of values */
	__u32 pad;
	struct probed_value values[MAX_OBSERVED_VALUES];
};

/* key: attach cookie */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, struct probed_values);
} value_probes SEC(".maps");

/* Reads a number of memory; no byte behind it is touched. */
static __always_inline bool read_number(__u64 at, __s8 size, __u64 *v)
{
	__u32 n = size < 0 ? -size : size;

	*v = 0;
	if (n > sizeof(*v) || bpf_probe_read_user(v, n, (void *)at))
		return false;
	*v = extended(*v, size);
	return true;
}

static __noinline bool read_operand(struct task_struct *task, const struct value_operand *op, __u64 *v)
{
	__u64 at = op->displacement;

	switch (op->kind) {
	case OPERAND_REGISTER:
		*v = extended(guest_register(task, op->reg), op->size);
		return true;
	case OPERAND_MEMORY:
		if (!op->absolute)
			at += guest_register(task, op->reg);
		if (op->scale)
			at += guest_register(task, op->index) * op->scale;
		return read_number(at, op->size, v);
	case OPERAND_CONSTANT:
		*v = extended(op->displacement, op->size);
		return true;
	}
	return false;
}

/* How much of the text's room value i may have. */
static __always_inline __u64 room_of(const struct observation *o, const struct probed_value *p)
{
	__u64 used = o->text_len;

	return used >= MAX_OBSERVED_TEXT || !p->share ? 0 : (MAX_OBSERVED_TEXT - used) / p->share;
}

static __always_inline void tell_place(struct observation *o, __u32 i, __u32 off, __u32 len, bool cut)
{
	o->values[i] = (__u64)off << 32 | len;
	o->text_len = off + len;
	if (cut) {
		o->flags |= SEEN_CUT;
		o->cut |= 1 << i;
	}
}

/*
 * Appends want bytes to the text. The verifier does not add off to len: it sees that both are below
 * the size of the text, and that what follows the text in struct scratch is larger than that.
 */
static __always_inline bool tell_bytes(struct scratch *s, __u32 i, const struct probed_value *p, __u64 at, __u64 want)
{
	__u64 off = s->seen.o.text_len, len = room_of(&s->seen.o, p);
	bool cut = want > len;

	if (!cut)
		len = want;
	asm volatile("" : "+r"(off), "+r"(len)); /* what is compared is what is used */
	if (off > MAX_OBSERVED_TEXT || len > MAX_OBSERVED_TEXT)
		return false;
	if (bpf_probe_read_user(s->seen.text + off, len, (void *)at))
		return false;
	tell_place(&s->seen.o, i, off, len, cut);
	return true;
}

/* Appends what is before the next zero byte, which needs a byte of the room, too. */
static __always_inline bool tell_string(struct scratch *s, __u32 i, const struct probed_value *p, __u64 at)
{
	__u64 off = s->seen.o.text_len, room = room_of(&s->seen.o, p);
	__u8 next = 0;
	long len;

	asm volatile("" : "+r"(off), "+r"(room));
	if (off > MAX_OBSERVED_TEXT || room > MAX_OBSERVED_TEXT)
		return false;
	len = bpf_probe_read_user_str(s->seen.text + off, room, (void *)at);
	if (room && len < 0) /* of an empty text it is 1, or 0 on older kernels (6.12 at least) */
		return false;
	if (len > 0)
		len--;
	if (len + 1 >= room && bpf_probe_read_user(&next, 1, (void *)(at + len)))
		return false;
	tell_place(&s->seen.o, i, off, len, next != 0);
	return true;
}

static __always_inline bool tell_symbol(struct scratch *s, __u32 i, const struct probed_value *p,
					const struct hotspot_heap *h, __u64 symbol)
{
	__u16 len;

	if (!symbol || bpf_probe_read_user(&len, sizeof(len), (void *)(symbol + h->symbol_length)))
		return false;
	return tell_bytes(s, i, p, symbol + h->symbol_body, len);
}

/* Tells what is at x, the name of a class or a Symbol. */
static __always_inline bool tell_name(struct scratch *s, __u32 i, const struct probed_value *p, __u64 x)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	const struct hotspot_heap *h = heap_of(bpf_map_lookup_elem(&processes, &pid), pid);

	if (!h)
		return false;
	if (p->form == VALUE_CLASS)
		x = klass_of(h, x);
	if (p->form != VALUE_SYMBOL && x)
		x = read_word(x + h->klass_name);
	return tell_symbol(s, i, p, h, x);
}

/* Tells value i of a probe; false if it cannot be read. */
static __always_inline bool tell_value(struct scratch *s, __u32 i, const struct probed_value *p)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 x, want;

	if (!read_operand(task, &p->base, &x))
		return false;
	for (int n = 0; n < MAX_FOLLOWED && n < p->followed; n++)
		if (!read_number(x + p->offsets[n], n + 1 == p->followed ? p->size : sizeof(x), &x))
			return false;
	x += p->offset;
	if (!p->followed)
		x = extended(x, p->size);
	switch (p->form) {
	case VALUE_NUMBER:
		s->seen.o.values[i] = x;
		return true;
	case VALUE_TEXT:
		if (p->length.kind == OPERAND_NONE)
			return tell_string(s, i, p, x);
		return read_operand(task, &p->length, &want) && (__s64)want >= 0 && tell_bytes(s, i, p, x, want);
	}
	return tell_name(s, i, p, x);
}

/*
 * Tells value i of a probe to the observation that this CPU has claimed. A function of its own: it
 * is verified once.
 */
__noinline int see_value(__u32 probe, __u32 i)
{
	struct probed_values *v = bpf_map_lookup_elem(&value_probes, &probe);
	struct scratch *s = this_scratch();

	asm volatile("" : "+r"(i)); /* what is compared is what is used */
	if (!v || !s || i >= MAX_OBSERVED_VALUES)
		return 0;
	s->seen.o.values[i] = 0;
	if (!tell_value(s, i, &v->values[i]))
		s->seen.o.failed |= 1 << i;
	return 0;
}

/* Notes the values of a probe. */
static __always_inline bool see_values(__u32 probe)
{
	struct probed_values *v;
	struct scratch *s;
	__u32 every, n;

	if (!chosen(bpf_get_current_pid_tgid() >> 32))
		return false;
	every = drawn_weight(probe);
	if (!every)
		return false;
	s = begin_observation(OBSERVED_VALUES, probe, every);
	if (!s)
		return false;
	v = bpf_map_lookup_elem(&value_probes, &probe);
	n = v ? v->count : 0;
	if (n > MAX_OBSERVED_VALUES)
		n = 0;
	/*
	 * Unrolled, or the compiler drops the bound that is a constant, and older verifiers follow
	 * the loop for ever.
	 */
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < MAX_OBSERVED_VALUES; i++) {
		if (i < n)
			see_value(probe, i);
	}
	s->seen.o.count = n;
	return true;
}
