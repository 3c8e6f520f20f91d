/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Arguments of probes, as USDT notes describe them. */
#pragma once

#include <linux/types.h>

/* Where a USDT note says an argument is. */
enum operand_kind {
	OPERAND_NONE = 0,
	OPERAND_REGISTER,
	OPERAND_MEMORY,
	OPERAND_CONSTANT,
};

struct operand {
	__s64 displacement; /* or the constant */
	__u8 kind;	    /* enum operand_kind */
	__u8 reg;	    /* byte offset in struct pt_regs */
	__s8 size;	    /* bytes, negative if signed */
	__u8 pad[5];
};

#define MAX_PROBE_SITES 64

/*
 * hotspot:compiled__method__load(class, len, name, len, signature, len, code, size); key: the
 * attach cookie
 */
struct load_site {
	struct operand class_name, class_len, method_name, name_len, signature, signature_len, code, size;
};
