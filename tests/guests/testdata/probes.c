//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* Uses everything of vmprof.h, and is C as well as C++. */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

int probes(int x, long y);

int probes(int x, long y)
{
	VMPROF_PROBE1(one, x);
	VMPROF_PROBE2(two, x, y);
	VMPROF_PROBE3(three, x, y, &x);
	VMPROF_PROBE4(four, x, y, 4, -4L);
	VMPROF_PROBE5(five, x, y, x + 1, y + 1, "five");
	VMPROF_PROBE6(six, x, y, x + 2, y + 2, x * y, 6u);
	return x;
}

int main(void)
{
	static const struct vmprof_site sites[] = {{4, 11}, {8, 12}};

	struct vmprof_slot *slot = vmprof_thread_begin();

	if (vmprof_start("probes") != 0)
		return 1;
	vmprof_method(1, "probes", "probes.c", 1, (const void *)&sites, sizeof(sites), sites, 2);
	slot->skip = 2;
	slot->left = 1;
	slot->armed = 1;
	vmprof_enter(1, __builtin_return_address(0));
	if (!slot->armed || slot->skip != 1)
		return 2;
	vmprof_enter(1, __builtin_return_address(0));
	if (slot->armed || slot->left != 0)
		return 3;
	vmprof_request(slot); /* the VM shares its check */
	slot->left = 1;
	slot->armed = slot->armed | VMPROF_ARMED;
	vmprof_enter(1, __builtin_return_address(0));
	if (slot->armed != VMPROF_REQUESTED || slot->left != 0)
		return 4;
	slot->left = 1;
	vmprof_enter(1, __builtin_return_address(0));
	if (slot->left != 1 || !vmprof_answer(slot) || slot->armed || vmprof_answer(slot))
		return 5;
	vmprof_version(1, vmprof_choose(1, 2), "unrolled");
	VMPROF_TIMER_START(1, 0); /* nobody audits */
	VMPROF_LOOP(1, 1, 4);
	VMPROF_TIMER_CANCEL(1, 0);
	VMPROF_TIMER_STOP(1, 0);
	vmprof_timer_start(1, 0);
	vmprof_loop(1, 1, 4);
	vmprof_timer_stop(1, 0);
	probes(vmprof_connected(), (long)vmprof_unslotted());
	vmprof_forget(1, (const void *)&sites);
	vmprof_request(slot);
	vmprof_thread_end();
	if (slot->armed || vmprof_answer(slot))
		return 6;
	vmprof_stop();
	return 0;
}
