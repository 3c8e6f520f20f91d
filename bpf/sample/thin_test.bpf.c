/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Draws of ticks as a program of its own, for tests only. */
#include "kernel/kernel.h"

#include "sample/thinning.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_TICKS (1 << 16)

struct thin_request {
	__u64 share;
	__u64 ticks; /* bpf_loop takes all 64 bits, whatever its prototype says */
	struct stratum stratum;
};

struct thin_request *export_thin_request __attribute__((unused));

/* key: 0; which of the ticks of the last run were drawn */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[MAX_TICKS]);
} draws SEC(".maps");

static long play_tick(__u64 i, struct thin_request *r)
{
	__u32 zero = 0;
	__u8(*drawn)[MAX_TICKS] = bpf_map_lookup_elem(&draws, &zero);

	if (!drawn)
		return 1;
	(*drawn)[i & (MAX_TICKS - 1)] = draw_tick(&r->stratum, r->share, bpf_get_prandom_u32());
	return 0;
}

SEC("syscall")
int play_ticks(struct thin_request *r)
{
	struct thin_request copy = *r;

	bpf_loop(copy.ticks, play_tick, &copy, 0);
	r->stratum = copy.stratum;
	return 0;
}
