/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Exceptions that are created. The constructor of java.lang.Throwable has the VM write the stack
 * trace of the new object (src/hotspot/share/prims/jvm.cpp). Exceptions without a stack trace do
 * not pass here: those of classes that refuse one, and those that the VM made in advance, as for
 * code that throws the same one again and again.
 */
#pragma once

#include "event/observe.bpf.h"

/* Notes an exception. The handle is the address of a word that refers to it. */
static __always_inline bool see_exception(__u64 handle, __u32 probe)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32, every;
	struct scratch *s;

	if (!observed_at(pid, probe))
		return false;
	every = drawn_weight(probe);
	if (!every)
		return false;
	s = begin_observation(OBSERVED_EXCEPTION, probe, every);
	if (s)
		see_object(s, bpf_map_lookup_elem(&processes, &pid), pid, read_word(handle), 0);
	return s;
}
