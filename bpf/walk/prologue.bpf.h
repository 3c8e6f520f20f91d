/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How much of its frame stands where compiled code was sampled, on x86-64. */
#pragma once

#include "kernel/kernel.h"

/* Where the return address is, seen from a sampled pc in compiled code. */
enum leaf_rule {
	LEAF_FRAME,	 /* the frame stands: by its size */
	LEAF_FRAME_BP,	 /* it stands, but rbp is not yet saved in it */
	LEAF_RET_AT_SP,	 /* not yet built, or torn down */
	LEAF_RET_AT_SP8, /* only rbp is on the stack */
};

/* bytes: sub rsp, mov [rsp + M], mov and add rbp, nops and cmp of the barrier are 36 at most */
#define PROLOGUE_REACH 40

/*
 * A fifth of all samples in compiled code fall into prologues and epilogues. The instructions
 * before and after pc show how much of the frame exists (C1 and C2 of JDK 8 to 25 differ only in
 * the poll before ret).
 */
__noinline int leaf_rule(__u64 pc, __u64 begin, __u32 complete)
{
	__u8 bytes[PROLOGUE_REACH + 16] = {};
	__u8 *o = bytes + PROLOGUE_REACH; /* o[0] is at pc */

	bpf_probe_read_user(bytes, sizeof(bytes), (void *)(pc - PROLOGUE_REACH));
	if (pc < begin + complete) {
		if (o[-1] == 0x55) /* push rbp just done */
			return LEAF_RET_AT_SP8;
		if (o[-4] == 0x55 && o[-3] == 0x48 && o[-2] == 0x8b && o[-1] == 0xec) /* and mov rbp, rsp */
			return LEAF_RET_AT_SP8;
		for (int i = 4; i <= PROLOGUE_REACH; i++) {
			__u8 *at = o - i;

			/*
			 * sub rsp, N done; what may follow up to complete is mov [rsp + M], rbp and
			 * the entry barrier
			 */
			if (pc - i >= begin && at[0] == 0x48 && at[2] == 0xec &&
			    (at[1] == 0x83 || (at[1] == 0x81 && i >= 7)))
				return o[0] == 0x48 && o[1] == 0x89 && (o[2] | 0xc0) == 0xec && o[3] == 0x24 ?
					LEAF_FRAME_BP : LEAF_FRAME;
		}
		return LEAF_RET_AT_SP;
	}
	if (o[0] == 0xc3) /* ret */
		return LEAF_RET_AT_SP;
	if (o[0] == 0x5d) /* pop rbp */
		return LEAF_RET_AT_SP8;
	/*
	 * add rsp, N; pop rbp done: a poll for safepoints is ahead, or a jump to where an exception
	 * is thrown again
	 */
	if (o[-1] == 0x5d && ((o[-5] == 0x48 && o[-4] == 0x83 && o[-3] == 0xc4) ||
			      (o[-8] == 0x48 && o[-7] == 0x81 && o[-6] == 0xc4)))
		return LEAF_RET_AT_SP;
	/* a native method's end: leave; (22+) test [r15 + M], 1; cmp [r15 + M], 0; jne; ret */
	if ((o[-1] == 0xc9 && o[0] == 0x41 && o[1] == 0xf6 && o[2] == 0x47) ||
	    (o[0] == 0x49 && o[1] == 0x83 && o[2] == 0x7f && o[5] == 0x0f && o[11] == 0xc3) ||
	    (o[0] == 0x49 && o[1] == 0x81 && o[2] == 0x7f && o[8] == 0x0f && o[14] == 0xc3))
		return LEAF_RET_AT_SP;
	/*
	 * the end of the poll, right before ret: ja (16+); test [r10], eax (10-15); test [rip + M],
	 * eax (8-15)
	 */
	if ((o[0] == 0x0f && (o[1] & 0xf0) == 0x80 && o[6] == 0xc3) ||
	    (o[0] == 0x41 && o[1] == 0x85 && o[3] == 0xc3) || (o[0] == 0x85 && o[1] == 0x05 && o[6] == 0xc3))
		return LEAF_RET_AT_SP;
	return LEAF_FRAME;
}
