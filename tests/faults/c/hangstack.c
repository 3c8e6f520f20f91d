/*
 * A thread that sleeps, with its stack in a file of a file system that does not answer reads: who walks the stack from outside hangs. The
 * file system is one of FUSE, which a thread of the same process serves.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIZE (1 << 20)

static void answer(int fuse, const struct fuse_in_header *in, const void *with, size_t size)
{
	char out[512];
	struct fuse_out_header *head = (void *)out;

	*head = (struct fuse_out_header){.len = sizeof(*head) + size, .unique = in->unique};
	memcpy(head + 1, with, size);
	if (write(fuse, out, head->len) < 0)
		perror("answer");
}

/* A directory with one file, whatever its name. Reads of it are not answered. */
static void *serve(void *arg)
{
	int fuse = *(int *)arg;
	char request[1 << 17];
	struct fuse_in_header *in = (void *)request;

	while (read(fuse, request, sizeof(request)) > 0) {
		struct fuse_attr attr = {.ino = in->nodeid, .mode = S_IFDIR | 0755, .nlink = 1};

		if (in->nodeid != FUSE_ROOT_ID || in->opcode == FUSE_LOOKUP)
			attr = (struct fuse_attr){.ino = 2, .mode = S_IFREG | 0644, .nlink = 1, .size = SIZE};
		switch (in->opcode) {
		case FUSE_INIT: {
			struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 1 << 16};

			answer(fuse, in, &out, sizeof(out));
			break;
		}
		case FUSE_LOOKUP: {
			struct fuse_entry_out out = {.nodeid = 2, .attr = attr, .entry_valid = 1000, .attr_valid = 1000};

			answer(fuse, in, &out, sizeof(out));
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out out = {.attr = attr, .attr_valid = 1000};

			answer(fuse, in, &out, sizeof(out));
			break;
		}
		case FUSE_FLUSH:
			answer(fuse, in, in, 0);
			break;
		case FUSE_OPEN: {
			struct fuse_open_out out = {0};

			answer(fuse, in, &out, sizeof(out));
			break;
		}
		}
	}
	return 0;
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

/* The arguments are the user that it becomes, and a directory. */
int main(int argc, char **argv)
{
	int uid = atoi(argv[1]), fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC), file;
	static struct timespec length = {.tv_sec = 1000000};
	char options[128], name[4096];
	pthread_t server;
	char *stack;

	if (fuse < 0)
		return fail("/dev/fuse");
	if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0))
		return fail("unshare");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
	if (mount("hang", argv[2], "fuse", 0, options))
		return fail("mount");
	if (pthread_create(&server, 0, serve, &fuse))
		return fail("pthread_create");
	snprintf(name, sizeof(name), "%s/stack", argv[2]);
	file = open(name, O_RDONLY);
	stack = file < 0 ? MAP_FAILED : mmap(0, SIZE, PROT_READ, MAP_PRIVATE, file, 0);
	if (stack == MAP_FAILED)
		return fail(name);
	close(file); /* while somebody answers: when the process is killed, nobody does */
	if (uid && (setgid(uid) || setuid(uid)))
		return fail("setuid");
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
