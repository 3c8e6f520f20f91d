//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* Gives more threads slots than there are, and prints who got one. */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>

#define THREADS (VMPROF_SLOTS + 4)

static pthread_barrier_t all;
static struct vmprof_slot *slots[THREADS];

static void *work(void *number)
{
	struct vmprof_slot **mine = (struct vmprof_slot **)number;

	*mine = vmprof_thread_begin();
	if (vmprof_thread_begin() != *mine || vmprof_self != *mine)
		*mine = NULL;
	pthread_barrier_wait(&all);
	if ((mine - slots) % 2)
		vmprof_thread_end();
	return NULL; /* the others' slots come back by themselves */
}

int main(void)
{
	struct vmprof_slot *none = vmprof_self;

	for (int round = 0; round < 3; round++) {
		pthread_t threads[THREADS];
		int distinct = 0, without = 0;

		pthread_barrier_init(&all, NULL, THREADS);
		for (int i = 0; i < THREADS; i++)
			if (pthread_create(&threads[i], NULL, work, &slots[i]) != 0)
				return 1;
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (int i = 0; i < THREADS; i++) {
			int seen = slots[i] == NULL;

			for (int j = 0; j < i; j++)
				seen |= slots[j] == slots[i];
			without += slots[i] == none;
			distinct += !seen && slots[i] != none;
		}
		printf("%d with a slot, %d without, %u so far\n", distinct, without, vmprof_unslotted());
	}
	return none->armed;
}
