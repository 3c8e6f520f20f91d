/* SPDX-License-Identifier: Apache-2.0 */
/* Yieldpoints: a timer wants every thread that runs the program to yield, and each does so at its next call. */
#pragma once

#include "vmprof.h"

#include <stdint.h>

/* On a thread, before it runs the program and at its end. Returns what the methods check. */
struct vmprof_slot *yield_begin(void);
void yield_end(void);

/* What the methods call if their check finds something: a request of the timer, or a thread that is sampled, or both. */
void yieldpoint(uint32_t callee, const void *site);

/* Starts the timer. */
void yield_often(uint32_t times_a_second);

/* Requests of the timer so far, without those to threads that ended instead; and how many of these were met. */
uint64_t yields_wanted(void);
uint64_t yields_done(void);
