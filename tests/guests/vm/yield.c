/* SPDX-License-Identifier: Apache-2.0 */
#include "yield.h"

#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* A thread that runs the program. */
struct yielder {
	struct vmprof_slot *slot;
	int wanted;
	struct yielder *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct yielder *yielders;
static uint64_t wanted, done;

static _Thread_local struct yielder self;
static _Thread_local struct vmprof_slot own; /* if the header has no slot left */

struct vmprof_slot *yield_begin(void)
{
	if (!self.slot) {
		pthread_mutex_lock(&lock);
		self = (struct yielder){.slot = vmprof_thread_begin_with(&own), .next = yielders};
		yielders = &self;
		pthread_mutex_unlock(&lock);
	}
	return self.slot;
}

void yield_end(void)
{
	struct yielder **at = &yielders;

	pthread_mutex_lock(&lock);
	while (*at != &self)
		at = &(*at)->next;
	*at = self.next;
	wanted -= self.wanted;
	pthread_mutex_unlock(&lock);
	vmprof_answer(self.slot);
	self.slot = NULL;
	vmprof_thread_end();
}

void yieldpoint(uint32_t callee, const void *site)
{
	if (vmprof_answer(self.slot)) {
		pthread_mutex_lock(&lock);
		done += self.wanted;
		self.wanted = 0;
		pthread_mutex_unlock(&lock);
		sched_yield();
	}
	vmprof_armed(callee, site);
}

/* Wants each thread to yield that has met the last request. */
static void *want(void *pause)
{
	for (;;) {
		usleep(*(useconds_t *)pause);
		pthread_mutex_lock(&lock);
		for (struct yielder *y = yielders; y; y = y->next) {
			if (y->wanted)
				continue;
			y->wanted = 1;
			wanted++;
			vmprof_request(y->slot);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

void yield_often(uint32_t times_a_second)
{
	static useconds_t pause;
	pthread_t timer;

	pause = 1000000 / times_a_second;
	if (pthread_create(&timer, NULL, want, &pause) != 0)
		die("no timer");
}

static uint64_t read_locked(const uint64_t *count)
{
	uint64_t value;

	pthread_mutex_lock(&lock);
	value = *count;
	pthread_mutex_unlock(&lock);
	return value;
}

uint64_t yields_wanted(void) { return read_locked(&wanted); }
uint64_t yields_done(void) { return read_locked(&done); }
