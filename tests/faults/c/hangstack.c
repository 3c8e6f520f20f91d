/* A thread that sleeps, with its stack in memory that nobody supplies: who walks its stack from outside hangs. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIZE (1 << 20)

/* The argument is the user that it becomes. */
int main(int argc, char **argv)
{
	int uid = atoi(argv[1]);
	static struct timespec length = {.tv_sec = 1000000};
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register r = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	char *stack = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	r.range.start = (unsigned long)stack;
	r.range.len = SIZE;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &r)) {
		perror("userfaultfd");
		return 1;
	}
	if (uid && (setgid(uid) || setuid(uid))) {
		perror("setuid");
		return 1;
	}
	putchar('\n');
	fflush(stdout);
	stack += SIZE / 2;
	asm volatile("mov %0, %%rsp\n\t"
		     "lea 64(%%rsp), %%rbp\n\t" /* the next frame's */
		     "mov %1, %%rdi\n"
		     "1:\tmov %2, %%eax\n\t"
		     "xor %%esi, %%esi\n\t"
		     "syscall\n\t"
		     "jmp 1b"
		     :
		     : "r"(stack), "r"(&length), "i"(SYS_nanosleep)
		     : "memory");
	__builtin_unreachable();
}
