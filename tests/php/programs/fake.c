/*
 * A program that looks like PHP to a profiler and means it harm. It has the note of php:function__entry, the version
 * and the symbols of PHP 8.2, and passes its probe while its semaphore is set; but its structures lie, and its memory
 * can be made to wait for ever.
 *
 * Orders: "run N" passes the probe's place N times, "hang" takes the semaphore's page away from everybody who asks for
 * it, "check" tells whether the words beside the semaphore are as they were. Each is answered by one line.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CANARY 0x5aa5

/* The semaphore, alone on its page but for what must not change. */
__attribute__((used, aligned(4096), section(".probes"))) volatile uint16_t fake_words[2048] = {
	[0 ... 2047] = CANARY, [1000] = 0,
};
#define SEMAPHORE fake_words[1000]

struct string { uint64_t gc, hash, length; char value[4096]; };
struct function { uint8_t type; uint8_t pad[7]; struct string *name; void *scope; uint8_t rest[128]; struct string *file; };
struct frame { void *opline, *call, *value; struct function *function; uint64_t self[2]; struct frame *prev; };

const char version[] = "X-Powered-By: PHP/8.2.35";
char executor_globals[1800];
void *zend_execute_ex = executor_globals;

static struct string name, file;
static struct function entered = { .type = 2, .name = &name, .scope = (void *)8, .file = &file };
static struct function internal = { .type = 1, .name = (struct string *)16 };
static struct frame loop = { .function = &internal, .prev = &loop }; /* has no end */
static struct frame top = { .opline = (void *)24, .function = &entered, .prev = &loop };

static __attribute__((noinline)) void pass(void)
{
	if (!__builtin_expect(SEMAPHORE, 0))
		return;
	asm volatile("990: nop\n"
		     ".pushsection .note.stapsdt,\"\",\"note\"\n"
		     ".balign 4\n"
		     ".4byte 992f-991f, 994f-993f, 3\n"
		     "991: .asciz \"stapsdt\"\n"
		     "992: .balign 4\n"
		     "993: .8byte 990b, 0, fake_words + 2000\n"
		     ".asciz \"php\"\n"
		     ".asciz \"function__entry\"\n"
		     ".asciz \"8@%%rax 8@%%rdx 8@$1 8@$-1 8@$0\"\n"
		     "994: .balign 4\n"
		     ".popsection\n"
		     :
		     : "a"(name.value), "d"(file.value));
}

/* From now on whoever touches the semaphore waits for an answer that never comes. */
static int hang(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { (uintptr_t)fake_words, 4096 }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	return fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	       mmap((void *)fake_words, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ||
	       ioctl(fd, UFFDIO_REGISTER, &range);
}

int main(void)
{
	static char line[128];
	long n, i;

	memset(name.value, 'n', sizeof(name.value)); /* does not end */
	memset(file.value, '\n', sizeof(file.value));
	*(struct frame **)(executor_globals + 488) = &top;
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "run %ld", &n) == 1) {
			for (i = 0; i < n; i++)
				pass();
			printf("%ld\n", n);
		} else if (!strcmp(line, "hang\n")) {
			printf("%s\n", hang() ? "failed" : "done");
		} else {
			for (n = i = 0; i < 2048; i++)
				n += i != 1000 && fake_words[i] != CANARY;
			printf("%ld words changed\n", n);
		}
	}
	return version[0] != 'X';
}
