//go:build ignore

/* Timing points that do nothing. */
#include <stdint.h>

void vmprof_loop(uint32_t method, uint32_t loop, uint64_t n) {}
void vmprof_timer_start(uint32_t method, uint32_t version) {}
void vmprof_timer_stop(uint32_t method, uint32_t version) {}
