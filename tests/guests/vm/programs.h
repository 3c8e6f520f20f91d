/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of programs that have a file of their own. Each adds its methods, and returns the root. */
#pragma once

#include "program.h"

uint32_t recursion(struct program *p);
uint32_t dispatch(struct program *p);
uint32_t zipf(struct program *p);
