//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* Registers what does not fit one packet, and takes things back before and after they were sent. */
#define VMPROF_IMPLEMENTATION
#include "vmprof.h"

#include <stdio.h>

#define SITES 2000

int main(void)
{
	static struct vmprof_site sites[SITES];
	static char name[1500], code[3][16384];

	memset(name, 'n', sizeof(name) - 1);
	for (uint32_t i = 0; i < SITES; i++)
		sites[i] = (struct vmprof_site){8 * i + 5, i};
	vmprof_method(1, name, NULL, 3, code[0], sizeof(code[0]), sites, SITES);
	vmprof_method(2, "unseen", "file", 4, code[1], sizeof(code[1]), NULL, 0);
	vmprof_forget(2, code[1]);
	vmprof_forget(2, code[2]); /* nothing is there */
	if (vmprof_method(0, "no id", "file", 1, code[1], 16, NULL, 0) != EINVAL ||
	    vmprof_method(4, "no code", "file", 1, code[1], 0, NULL, 0) != EINVAL)
		return 4;
	if (vmprof_start("a name that is too long") != 0 || vmprof_start("again") != 0)
		return 1;
	if (getchar() != '\n')
		return 2;
	vmprof_forget(1, code[0]);
	vmprof_method(3, "three", "file", 5, code[0], 16, sites, 1);
	if (getchar() != EOF)
		return 3;
	vmprof_stop();
	return vmprof_connected();
}
