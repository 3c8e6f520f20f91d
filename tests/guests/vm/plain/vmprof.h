/* SPDX-License-Identifier: Apache-2.0 */
/* What the VM would have without vmprof.h: a word for each thread, for yieldpoints. It takes the place of that file. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct vmprof_slot {
	volatile uint32_t armed;
};

struct vmprof_site {
	uint32_t offset, line;
};

static inline void vmprof_request(struct vmprof_slot *slot) { __atomic_store_n(&slot->armed, 1, __ATOMIC_SEQ_CST); }
static inline int vmprof_answer(struct vmprof_slot *slot)
{
	return __atomic_exchange_n(&slot->armed, 0, __ATOMIC_SEQ_CST) != 0;
}

static inline struct vmprof_slot *vmprof_thread_begin(void) { return NULL; }
static inline struct vmprof_slot *vmprof_thread_begin_with(struct vmprof_slot *own) { return own; }
static inline void vmprof_thread_end(void) {}

static inline void vmprof_armed(uint32_t callee, const void *site) { (void)callee, (void)site; }
static inline void vmprof_stub(void) {}

static inline int vmprof_start(const char *runtime) { return runtime == NULL; }
static inline void vmprof_stop(void) {}
static inline int vmprof_connected(void) { return 0; }
static inline int vmprof_method(uint32_t id, const char *name, const char *file, uint32_t line, const void *begin,
				uint32_t size, const struct vmprof_site *sites, uint32_t count)
{
	(void)id, (void)name, (void)file, (void)line, (void)begin, (void)size, (void)sites, (void)count;
	return 0;
}
static inline void vmprof_forget(uint32_t id, const void *begin) { (void)id, (void)begin; }
