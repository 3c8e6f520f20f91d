/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The call graph: who called whom from where. Threads share edges. */
#pragma once

#include "call/exact/exactcode.bpf.h"
#include "call/exact/exacttree.bpf.h"

/*
 * Counts the call that was just pushed. Where a method is inlined, HotSpot records no debug
 * information at the call that announces it, so the place of the call is only known to be somewhere
 * in that code.
 */
static __noinline int count_edge(struct exact_state *t)
{
	__u64 one = 1, *calls;

	t->edge.callee = t->key.method;
	t->edge.caller = t->caller;
	t->edge.class_epoch = t->key.class_epoch;
	t->edge.site = t->edge.inlined ? code_frame(t, t->from) : call_site(t);
	calls = bpf_map_lookup_elem(&edges, &t->edge);
	if (!calls) {
		announce(t, t->key.method);
		if (t->caller)
			announce(t, t->caller);
		if (!bpf_map_update_elem(&edges, &t->edge, &one, BPF_NOEXIST))
			return 0;
		calls = bpf_map_lookup_elem(&edges, &t->edge); /* another thread was faster, or there is no room */
	}
	if (calls)
		__sync_fetch_and_add(calls, 1);
	else
		count_exact(EXACT_NO_EDGE, 1);
	return 0;
}
