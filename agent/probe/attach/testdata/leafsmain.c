/* For each line of input, calls every function 1,000 times, and prints how many results were wrong. */
#include "leafs.h"
#include <stdio.h>

void nothing(void) {}

int main(void)
{
	static long (*const all[])(long) = {leaf1, leaf2, leaf3, leaf4, leaf5, leaf6, calls};
	char line[16];

	while (fgets(line, sizeof(line), stdin)) {
		long wrong = 0;

		for (long n = 1; n <= 1000; n++)
			for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
				wrong += all[i](n) != 36 * n;
		printf("%ld\n", wrong);
		fflush(stdout);
	}
	return 0;
}
