// Runs code without a file as the user UID. Its map for perf is its own, which names the code "own_code", or a link to FILE.
// usage: linkedmap UID [FILE]
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc < 2 || setresgid(atoi(argv[1]), atoi(argv[1]), atoi(argv[1])) || setresuid(atoi(argv[1]), atoi(argv[1]), atoi(argv[1]))) return 1;
  // push rbp; mov rbp,rsp; mov rcx,rdi; 1: dec rcx; jnz 1b; pop rbp; ret
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x5d, 0xc3};
  void *at = mmap((void *)0x200000000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) return 1;
  memcpy(at, code, sizeof code);
  char name[64];
  snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
  if (argc > 2) {
    if (symlink(argv[2], name)) return 1;
  } else {
    FILE *f = fopen(name, "w");
    if (!f) return 1;
    fprintf(f, "200000000000 100 own_code\n");
    fclose(f);
  }
  puts(name);
  fflush(stdout);
  for (;;) ((void (*)(long))at)(20000000);
}
