/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frames of HotSpot's interpreter, on x86-64. A frame is based on rbp: return address, saved rbp,
 * sender's sp, Method*, bytecode pointer. What is here is verified once, apart from the loop over
 * frames, and leaves its answers in scratch.
 */
#pragma once

#include "walk/stackchunk.bpf.h"
#include "walk/stackcopy.bpf.h"

#define INTERPRETER_ENTRY (END_COUNT + 1)
#define INTERPRETER_EDGE (END_COUNT + 2)
#define REDEFINES 1
#define REDEFINES_NOT 2
#define INTERPRETER_REACH (1 << 20) /* bytes; the largest frame: 65,535 locals and an expression stack */

static __always_inline bool on_stack(__u64 sp, __u64 v)
{
	return v > sp && v - sp < INTERPRETER_REACH;
}

/* key: hash of serial and Method*, see seen_method_slot. A full table forgets. 0.7 MB. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_METHODS);
	__type(key, __u32);
	__type(value, struct seen_method);
} seen_methods SEC(".maps");

static __always_inline __u32 seen_method_slot(__u32 serial, __u64 method)
{
	return (method ^ (__u64)serial << 48) * SEEN_METHODS_HASH >> 40;
}

/*
 * Compares a method with what it was when any CPU met it last; what it is now is in scratch.start,
 * not in arguments: Linux 6.1 counts the stacks of all functions from the tick down to here, in
 * steps of 32 bytes, and there are 512. If it is another one, a new class epoch begins, unless that
 * is over in which it was met: frames with this Method* are not those of before. Leaves in the
 * sample the epoch in which the method is what it is now. A Java thread that is walked on its CPU
 * is not at a safepoint, and methods change nowhere else.
 */
__noinline int see_method(__u32 slot, __u64 method)
{
	struct epochs *e = bpf_map_lookup_elem(&epochs, &slot);
	struct scratch *s = this_scratch();
	struct seen_method *m, *unused = 0;
	__u32 serial, first, at, now;

	if (!e || !s)
		return 0;
	now = e->classes;
	serial = s->start.owner >> 32;
	first = seen_method_slot(serial, method);
	for (__u32 i = 0; i < SEEN_METHODS_PROBED; i++) {
		at = (first + i) & (SEEN_METHODS - 1);
		m = bpf_map_lookup_elem(&seen_methods, &at);
		if (!m)
			return 0;
		if (m->serial == serial && m->method == method) {
			if (m->const_method != s->start.method_const || m->shape != s->start.method_shape ||
			    (m->name != s->start.method_name && m->name && s->start.method_name)) {
				if (m->met == now)
					now = __sync_fetch_and_add(&e->classes, CLASS_EPOCH_CHANGE) +
						CLASS_EPOCH_CHANGE;
				m->since = now;
				m->const_method = s->start.method_const;
				m->shape = s->start.method_shape;
				m->name = s->start.method_name;
				count(METHODS_CHANGED, 1);
			}
			m->met = now;
			goto seen;
		}
		/*
		 * A method that is in none of its slots takes an empty one, or else one that the
		 * hash draws.
		 */
		if (!m->serial || (!unused && i == (first >> 20) % SEEN_METHODS_PROBED))
			unused = !unused || unused->serial ? m : unused;
	}
	if (unused) {
		unused->serial = 0;
		unused->method = method;
		unused->const_method = s->start.method_const;
		unused->shape = s->start.method_shape;
		unused->name = s->start.method_name;
		unused->since = unused->met = now;
		unused->serial = serial;
	}
seen:
	s->sample.class_epoch = e->classes; /* last: who finds a change counts it before noting it */
	return 0;
}

/*
 * Whether methods may be redefined, by the VM's own account: an agent in it has asked for that, or
 * a debugger. Then Method structures become those of other methods without a word, otherwise only
 * after classes are unloaded.
 */
static __always_inline bool may_redefine(const struct hotspot_process *vm, struct scratch *s)
{
	if (!s->start.redefines) {
		__u8 may = 1;

		if (vm->may_redefine && bpf_probe_read_user(&may, sizeof(may), (void *)vm->may_redefine))
			may = 1;
		s->start.redefines = may ? REDEFINES : REDEFINES_NOT;
	}
	return s->start.redefines == REDEFINES;
}

/*
 * A class that replaces another one may have methods of the same shape at the same addresses: they
 * differ in their names. Leaves what distinguishes the names in scratch.start.method_name: one
 * word, 0 if it cannot be read, as the page is not in memory. What it reads goes to scratch, as
 * there is no room on the stack.
 */
static __noinline void read_method_name(const struct hotspot_process *vm, struct scratch *s)
{
	__u32 index = s->start.method_shape >> (vm->method_name_shift & 63) & 0xffff;
	__u64 *pool = &s->start.method_pool, *name = &s->start.method_name;

	*name = 0;
	if (!vm->method_name_shift ||
	    bpf_probe_read_user(pool, sizeof(*pool), (void *)(s->start.method_const + vm->const_method_constants)) ||
	    !*pool ||
	    bpf_probe_read_user(name, sizeof(*name), (void *)(*pool + vm->const_pool_size + 8 * (__u64)index)) ||
	    !*name)
		return;
	*name = (*pool + (*name & ~1ull)) * SEEN_METHODS_HASH; /* the lowest bit is a mark that changes */
}

/* A word that differs where its shape or name does. */
static __always_inline __u64 method_id(struct scratch *s)
{
	return s->start.method_shape ^ s->start.method_name;
}

static __always_inline __u32 method_slot(__u64 method)
{
	return (__u32)((method * 0x9e3779b97f4a7c15ull) >> 44) & (METHODS - 1);
}

/* What is known of a method that the interpreter runs, cached. 0 if it makes no sense. */
static __always_inline struct interpreted_method *method_at(const struct hotspot_process *vm, struct scratch *s,
							    __u64 method)
{
	struct interpreted_method *m = &s->methods[method_slot(method)];
	__u32 serial = s->start.owner >> 32;
	bool known = m->method == method && m->serial == serial && m->class_epoch == s->sample.class_epoch;
	__u64 cm;

	if (known && (m->walk == s->start.walk || ((vm->flags & HOTSPOT_UNLOAD_EVENTS) && !may_redefine(vm, s))))
		return m;
	cm = read_word(method + vm->method_const);
	s->start.method_const = cm;
	if (!cm || bpf_probe_read_user(&s->start.method_shape, sizeof(s->start.method_shape),
				       (void *)(cm + vm->const_method_code_size)))
		return 0;
	read_method_name(vm, s);
	if (!known || m->id != method_id(s) || m->begin != cm + vm->const_method_size)
		see_method(vm->slot, method);
	m->size = (__u16)s->start.method_shape;
	m->begin = s->start.method_const + vm->const_method_size;
	m->id = method_id(s);
	m->class_epoch = s->sample.class_epoch;
	m->walk = s->start.walk;
	m->method = method;
	m->serial = serial;
	return m;
}

static __always_inline __u64 interpreted_frame(__u64 method, __u64 bci)
{
	return (__u64)FRAME_INTERP << FRAME_KIND_SHIFT | (method >> 3 & 0xfffffffffffull) << 16 | (bci & 0xffff);
}

/*
 * Whether a method is being entered from the interpreted frame at bp: its return address is right
 * below r13.
 */
static __always_inline bool at_method_entry(const struct hotspot_process *vm, struct scratch *s, __u64 sp, __u64 bp,
					    __u64 caller)
{
	__u64 r13 = s->regs.r13, rbx = s->regs.rbx;
	struct interpreted_method *m;

	if (!on_stack(sp, r13) || (r13 & 7) || r13 > bp || rbx == caller)
		return false;
	if (!is_return(vm, read_word(r13 - 8)))
		return false;
	m = method_at(vm, s, rbx);
	return m && m->size;
}

/*
 * A frame of the interpreter, at bp. Where it was sampled, r13 is the bytecode pointer, except in
 * code that uses r13 for itself, where the frame holds the last one, and in the code around frames.
 * Returns 0, with the frame and its caller in scratch; INTERPRETER_ENTRY or INTERPRETER_EDGE where
 * there is none yet, or not any more; or an enum walk_end.
 */
__noinline int interpreter_frame(const struct hotspot_process *vm, __u64 sp, __u64 bp, __u32 leaf)
{
	struct scratch *s = this_scratch();
	struct interpreted_method *m = 0;
	__u64 bci;

	if (!vm || !s)
		return END_READ;
	if (bp >= sp && bp - sp < INTERPRETER_REACH && !(bp & 7) &&
	    !stackcopy_cover(s, s->start.stack_to, bp + vm->interp_bcp, 80)) {
		/* the Method*, as there is little room on the stack */
		s->frame = stackcopy_word(s, bp + vm->interp_method);
		/* a chunk's outermost one may return to 0 */
		if (s->start.chunk_to || in_code_cache(vm, stackcopy_word(s, bp + 8)))
			m = method_at(vm, s, s->frame);
	}
	if (!m)
		return leaf ? INTERPRETER_EDGE : END_INTERPRETER;
	bci = FRAME_NO_BCI;
	if (m->size) {
		bci = s->regs.r13 - m->begin;
		if (!leaf || bci >= m->size) {
			if (leaf && at_method_entry(vm, s, sp, bp, s->frame))
				return INTERPRETER_ENTRY;
			bci = stackcopy_word(s, bp + vm->interp_bcp) - m->begin;
		}
		if (bci >= m->size) /* no frame of the interpreter, but something that looks like one */
			return leaf ? INTERPRETER_EDGE : END_INTERPRETER;
	}
	s->frame = interpreted_frame(s->frame, bci);
	s->caller.pc = stackcopy_word(s, bp + 8);
	s->caller.sp = stack_pointer(s, bp, stackcopy_word(s, bp + vm->interp_sender_sp));
	s->caller.bp = stack_pointer(s, bp, stackcopy_word(s, bp));
	return 0;
}

/*
 * The interpreter's own code where no frame stands, behind stub_caller. Before it does, rbx is the
 * Method*, r13 the caller's sp, which an adapter may have left above the return address, and rbp
 * the caller's. After it is gone, rbx is the caller's sp. Returns 0, with the frame and its caller
 * in scratch.
 */
__noinline int interpreter_edge(const struct hotspot_process *vm, __u64 pc, __u64 sp, __u32 why)
{
	struct scratch *s = this_scratch();
	struct interpreted_method *m = 0;
	__u64 caller = 0;

	if (!vm || !s)
		return END_READ;
	if (on_stack(sp, s->regs.r13)) {
		caller = s->regs.r13;
		m = method_at(vm, s, s->regs.rbx);
	} else if (on_stack(sp, s->regs.rbx)) {
		caller = s->regs.rbx;
	}
	if (why == INTERPRETER_ENTRY || (m && m->size))
		s->frame = interpreted_frame(s->regs.rbx, FRAME_NO_BCI);
	else
		s->frame = (__u64)FRAME_STUB << FRAME_KIND_SHIFT | ((pc - vm->code_low) & 0xffffffff);
	if (caller > s->caller.sp)
		s->caller.sp = caller;
	return 0;
}
