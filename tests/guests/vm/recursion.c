/* SPDX-License-Identifier: Apache-2.0 */
#include "programs.h"

/* fib(18): 8361 calls; two methods that call each other 200 deep; one that calls itself 1000 deep. */
uint32_t recursion(struct program *p)
{
	uint32_t fib = declare(p, "fib"), even = declare(p, "even"), odd = declare(p, "odd"), down = declare(p, "down");
	uint32_t root = declare(p, "recurse"), end;

	begin(p, fib);
	end = put(p, OP_BELOW, 0, 2, 0);
	put(p, OP_ADDI, 0, -1, 0);
	call(p, fib);
	put(p, OP_STORE, 1, 0, 0);
	put(p, OP_LOAD, 0, 0, 0);
	put(p, OP_ADDI, 0, -2, 0);
	call(p, fib);
	put(p, OP_ADD, 1, 0, 0);
	land(p, end);
	put(p, OP_RETURN, 0, 0, 0);

	for (int i = 0; i < 3; i++) {
		begin(p, i == 0 ? even : i == 1 ? odd : down);
		end = put(p, OP_BELOW, 0, 1, 0);
		put(p, OP_ADDI, 0, -1, 0);
		call(p, i == 0 ? odd : i == 1 ? even : down);
		put(p, OP_ADDI, 0, i + 2, 0);
		land(p, end);
		put(p, OP_RETURN, 0, 0, 0);
	}

	begin(p, root);
	put(p, OP_CONST, 0, 18, 0);
	call(p, fib);
	put(p, OP_ADD, 0, 0, 0);
	put(p, OP_STORE, 1, 0, 0);
	put(p, OP_CONST, 0, 200, 0);
	call(p, even);
	put(p, OP_ADD, 1, 0, 0);
	put(p, OP_STORE, 1, 0, 0);
	put(p, OP_CONST, 0, 1000, 0);
	call(p, down);
	put(p, OP_ADD, 1, 0, 0);
	put(p, OP_RETURN, 0, 0, 0);
	return root;
}
