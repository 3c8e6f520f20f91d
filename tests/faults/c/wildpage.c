/* A VM that, once an agent is connected, writes random bytes into all memory that it shares with the agent, and sends random packets. */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>

enum { THREADS = 4, CODE = 1 << 16 };

static uint8_t code[CODE];

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Writes up to 64 random bytes somewhere, or small numbers, which are more often taken for sound. */
static void scribble(uint8_t *memory, size_t size, uint64_t *state)
{
	size_t at = draw(state) % size & ~(size_t)3, n = draw(state) % 64 + 4;

	for (; n > 0 && at + 4 <= size; n -= n < 4 ? n : 4, at += 4) {
		uint32_t value = (uint32_t)draw(state);

		if (draw(state) & 1)
			value %= 8;
		memcpy(memory + at, &value, 4);
	}
}

static void *run(void *seed)
{
	uint64_t state = (uintptr_t)seed;
	uint8_t packet[4096];

	vmprof_thread_begin();
	for (;;) {
		uint32_t method = draw(&state) % 16;
		const uint8_t *site = code + draw(&state) % CODE;

		if (vmprof_page_)
			scribble((uint8_t *)vmprof_page_, sizeof(*vmprof_page_), &state);
		if (vmprof_timing())
			scribble((uint8_t *)vmprof_timings_, sizeof(*vmprof_timings_), &state);
		vmprof_enter(method, site);
		VMPROF_PROBE2(call, draw(&state) >> draw(&state) % 64, draw(&state) & 1 ? (uintptr_t)site : draw(&state));
		VMPROF_PROBE1(thread, draw(&state) >> draw(&state) % 64);
		if (vmprof_connected() && draw(&state) % 4096 == 0) {
			size_t n = draw(&state) % sizeof(packet);

			scribble(packet, sizeof(packet), &state);
			packet[0] = (uint8_t)(draw(&state) % 8);
			packet[1] = packet[2] = packet[3] = 0;
			send(vmprof_.socket, packet, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		}
	}
	return NULL;
}

int main(void)
{
	uintptr_t i;
	pthread_t thread;

	for (i = 1; i < 16; i++)
		vmprof_method((uint32_t)i, "wild", "wild.src", (uint32_t)i, code + i * 4096, 4096, NULL, 0);
	vmprof_start("wild");
	while (!vmprof_connected())
		usleep(1000);
	puts("connected");
	fflush(stdout);
	for (i = 1; i <= THREADS; i++)
		pthread_create(&thread, NULL, run, (void *)(i * 0x9e3779b97f4a7c15u));
	for (;;)
		pause();
}
