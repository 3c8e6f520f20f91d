/* Functions that call nothing, with variables in the red zone around a probe, and one that calls. */
#include "leafs.h"
#include "vmprof.h"

#ifdef LONG_NOP /* as other tools place it, and vmprof.h did once */
#undef VMPROF_SITE_
#define VMPROF_SITE_(name, arguments) VMPROF_SITE_ON_(LONG_NOP, name, arguments)
#endif

#define FILL(n)                                                                                                        \
	volatile long kept[8], sum = 0;                                                                                \
	for (int i = 0; i < 8; i++)                                                                                    \
		kept[i] = (n) * (i + 1)
#define SUM                                                                                                            \
	for (int i = 0; i < 8; i++)                                                                                    \
		sum += kept[i];                                                                                        \
	return sum

long leaf1(long n) { FILL(n); VMPROF_PROBE1(leaf1, n); SUM; }
long leaf2(long n) { FILL(n); VMPROF_PROBE2(leaf2, n, 2); SUM; }
long leaf3(long n) { FILL(n); VMPROF_PROBE3(leaf3, n, 2, 3); SUM; }
long leaf4(long n) { FILL(n); VMPROF_PROBE4(leaf4, n, 2, 3, 4); SUM; }
long leaf5(long n) { FILL(n); VMPROF_PROBE5(leaf5, n, 2, 3, 4, 5); SUM; }
long leaf6(long n) { FILL(n); VMPROF_PROBE6(leaf6, n, 2, 3, 4, 5, 6); SUM; }

#ifdef INLINE_CALL /* which the compiler does not know of */
long calls(long n)
{
	FILL(n);
	VMPROF_PROBE1(calls, n);
	__asm__ volatile("lea -256(%%rsp), %%rsp\n\tcall nothing\n\tlea 256(%%rsp), %%rsp" ::: "memory");
	SUM;
}
#else
long calls(long n)
{
	FILL(n);
	if (n < 0)
		nothing(); /* never */
	VMPROF_PROBE1(calls, n);
	SUM;
}
#endif
