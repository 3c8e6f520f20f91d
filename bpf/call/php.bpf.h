/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * PHP's structures, as far as a call in php:function__entry needs them. That USDT probe stands in
 * dtrace_execute_ex (Zend/zend_dtrace.c), which PHP executes user functions with if it was started
 * with USE_ZEND_DTRACE=1. Names of the callee come from the probe's arguments, the caller from the
 * chain of zend_execute_data (Zend/zend_compile.h).
 *
 * Everything that is read here was written by a guest: addresses are only ever read from, strings
 * are cut, and the chain is followed for a bounded length.
 */
#pragma once

#include "kernel/operand.bpf.h"

/*
 * How many frames that are not user code are looked past for a caller: internal functions
 * (array_map), and the frames without function that generators leave.
 */
#define MAX_PHP_INTERNAL 8

/*
 * Where things are in PHP's structures, bytes. The same from 7.4 to 8.4 on 64-bit machines; what
 * those versions moved is in struct usdt_probe.
 */
#define EXECUTE_DATA_OPLINE 0 /* zend_execute_data */
#define EXECUTE_DATA_FUNC 24
#define EXECUTE_DATA_PREV 48
#define FUNCTION_TYPE 0 /* zend_function: a byte */
#define FUNCTION_NAME 8
#define FUNCTION_SCOPE 16
#define OP_LINENO 24	 /* zend_op */
#define CLASS_NAME 8	 /* zend_class_entry */
#define STRING_VALUE 24 /* zend_string */

#define PHP_USER_FUNCTION 2 /* ZEND_USER_FUNCTION */
#define PHP_EVAL_CODE 4	    /* ZEND_EVAL_CODE */

/* The nearest user function that called, and where. */
struct php_caller {
	__u64 func; /* zend_op_array */
	__u32 line;
};

static __noinline __u64 php_pointer(__u64 addr)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)addr);
	return v;
}

static __noinline bool php_user_code(__u64 func)
{
	__u8 type = 0;

	bpf_probe_read_user(&type, sizeof(type), (void *)(func + FUNCTION_TYPE));
	return type == PHP_USER_FUNCTION || type == PHP_EVAL_CODE;
}

/* Who called the function of this frame. Returns false if no user code did. */
static __noinline bool php_caller_of(__u64 frame, struct php_caller *caller)
{
	int i;

	for (i = 0; i < MAX_PHP_INTERNAL; i++) {
		frame = php_pointer(frame + EXECUTE_DATA_PREV);
		if (!frame)
			break;
		caller->func = php_pointer(frame + EXECUTE_DATA_FUNC);
		if (caller->func && php_user_code(caller->func)) {
			bpf_probe_read_user(&caller->line, sizeof(caller->line),
					    (void *)(php_pointer(frame + EXECUTE_DATA_OPLINE) + OP_LINENO));
			return true;
		}
	}
	caller->func = 0;
	caller->line = 0;
	return false;
}

/* The characters of the zend_string that a field points to; 0 if it points nowhere. */
static __always_inline __u64 php_characters(__u64 field)
{
	__u64 s = php_pointer(field);

	return s ? s + STRING_VALUE : 0;
}
