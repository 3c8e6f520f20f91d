/* SPDX-License-Identifier: Apache-2.0 */
/* Failed allocations, and other errors, end this VM. */
#pragma once

#include <stddef.h>

void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void *resize(void *p, size_t size);
void *zeroed(size_t count, size_t size);
