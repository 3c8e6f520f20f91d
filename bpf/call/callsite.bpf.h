/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A call as two frames (sample.h), seen from the first instruction of the callee: where it stands,
 * and where it will return to. HotSpot's adapters and its vtable and itable stubs jump to the
 * callee, so that the return address is the real caller's already. For two callers the return
 * address is not enough: the interpreter is identified by its frame at rbp, and native code by its
 * record of the Java code that called it (both as in hotspot.bpf.h). Keeps no state.
 */
#pragma once

#include "walk/codecache.bpf.h"
#include "record/sample.h"

/* Of a thread at the first instruction of a callee. */
struct entry_registers {
	__u64 pc;
	__u64 ra; /* where the callee will return to */
	__u64 sp; /* of the caller, behind the return address if that is on the stack */
	__u64 bp; /* of the caller: the callee has not touched it yet */
	__u64 thread; /* a JavaThread* if the callee is Java code that HotSpot compiled */
};

/* Canonical frame addresses of a call, 0 where unknown: as walks note them (frames.bpf.h). */
struct call_places {
	__u64 callee, caller;
};

#define ENTRY_REACH (1 << 20) /* bytes up the stack where a JavaCallWrapper may be */

static __always_inline __u64 native_frame(__u64 pc)
{
	return (__u64)FRAME_NATIVE << FRAME_KIND_SHIFT | (pc & 0xfffffffffffffffull);
}

static __always_inline __u64 stub_frame(const struct hotspot_process *vm, __u64 pc)
{
	return (__u64)FRAME_STUB << FRAME_KIND_SHIFT | ((pc - vm->code_low) & 0xffffffff);
}

/* Whether pc is where the frames of this nmethod return to once it is deoptimised. */
static __always_inline bool is_deopt_handler(const struct hotspot_process *vm, __u64 blob, __u64 pc)
{
	if (vm->flags & HOTSPOT_DEOPT_OFFSET)
		return pc == blob + read_int(blob + vm->blob_deopt_handler);
	return pc == read_word(blob + vm->blob_deopt_handler) ||
	       ((vm->flags & HOTSPOT_DEOPT_MH) && pc == read_word(blob + vm->blob_deopt_mh_handler));
}

/*
 * A place in the code cache that is not the interpreter's. sp is that of the frame there, 0 if pc
 * was just entered.
 */
static __noinline __u64 code_frame(const struct hotspot_process *vm, __u64 pc, __u64 sp)
{
	__u64 blob = blob_at(vm, pc), name, orig;
	__u32 id;

	if (!blob)
		return stub_frame(vm, pc);
	name = read_word(blob + vm->blob_name);
	if (!name || (name != vm->name_nmethod && name != vm->name_native))
		return stub_frame(vm, pc);
	id = read_int(blob + vm->blob_compile_id);
	if (sp && is_deopt_handler(vm, blob, pc)) {
		orig = read_word(sp + read_int(blob + vm->blob_orig_pc));
		if (in_code_cache(vm, orig))
			pc = orig;
	}
	return (__u64)FRAME_JIT << FRAME_KIND_SHIFT | (__u64)(id & 0xfffffff) << 32 |
		((pc - vm->code_low) & 0xffffffff);
}

static __always_inline bool in_interpreter(const struct hotspot_process *vm, __u64 pc)
{
	return pc >= vm->interpreter_low && pc < vm->interpreter_high;
}

/*
 * The method of the interpreter's frame at bp, which is in the middle of a call; the code at pc if
 * there is none.
 */
static __always_inline __u64 interpreter_frame(const struct hotspot_process *vm, __u64 pc, __u64 bp)
{
	__u64 method = read_word(bp + vm->interp_method), cm = read_word(method + vm->method_const), bci;
	__u16 size = 0;

	if (!cm || bpf_probe_read_user(&size, sizeof(size), (void *)(cm + vm->const_method_code_size)))
		return stub_frame(vm, pc);
	bci = read_word(bp + vm->interp_bcp) - cm - vm->const_method_size;
	if (!size)
		bci = FRAME_NO_BCI; /* a native method */
	else if (bci >= size)
		return stub_frame(vm, pc);
	return (__u64)FRAME_INTERP << FRAME_KIND_SHIFT | (method >> 3 & 0xfffffffffffull) << 16 | bci;
}

static __always_inline __u64 java_frame(const struct hotspot_process *vm, __u64 pc, __u64 sp, __u64 bp)
{
	return in_interpreter(vm, pc) ? interpreter_frame(vm, pc, bp) : code_frame(vm, pc, sp);
}

/* The canonical frame address of the frame of Java code at pc, whose registers are sp and bp. */
static __noinline __u64 java_cfa(const struct hotspot_process *vm, __u64 pc, __u64 sp, __u64 bp)
{
	__u64 blob, name;

	if (in_interpreter(vm, pc))
		return read_word(bp + vm->interp_sender_sp);
	blob = blob_at(vm, pc);
	name = blob ? read_word(blob + vm->blob_name) : 0;
	if (!name || (name != vm->name_nmethod && name != vm->name_native))
		return 0;
	return sp + 8 * (__u64)read_int(blob + vm->blob_frame_size);
}

/* The callee. */
static __always_inline __u64 callee_frame(const struct hotspot_process *vm, const struct entry_registers *r)
{
	if (!vm || !in_code_cache(vm, r->pc))
		return native_frame(r->pc);
	return code_frame(vm, r->pc, 0);
}

/*
 * The call site. Native code that calls Java comes through the call stub; the Java code that had
 * called that native code is the caller then, and the stub if there is none: the thread began
 * there. Of native code, a frame pointer is assumed.
 */
static __always_inline __u64 caller_frame(const struct hotspot_process *vm, const struct entry_registers *r,
					  struct call_places *at)
{
	__u64 pc = r->ra, sp = r->sp, bp = r->bp, anchor;

	at->callee = sp;
	at->caller = 0;
	if (!vm || !in_code_cache(vm, pc)) {
		if (bp >= sp && !(bp & 7))
			at->caller = bp + 16;
		return native_frame(pc);
	}
	if (pc == vm->call_stub_return) {
		anchor = read_word(bp + vm->entry_wrapper_offset);
		if (anchor < r->sp || anchor - r->sp >= ENTRY_REACH)
			return stub_frame(vm, pc);
		anchor += vm->wrapper_anchor;
		sp = read_word(anchor + vm->anchor_sp);
		if (!sp)
			return stub_frame(vm, pc);
		pc = read_word(anchor + vm->anchor_pc);
		if (!pc)
			pc = read_word(sp - 8);
		if (!in_code_cache(vm, pc))
			return stub_frame(vm, r->ra);
		bp = read_word(anchor + vm->anchor_fp);
		at->callee = sp;
	}
	at->caller = java_cfa(vm, pc, sp, bp);
	return java_frame(vm, pc, sp, bp);
}
