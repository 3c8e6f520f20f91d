/*
 * A program that looks like a JVM, and whose tables are in a page that nobody supplies: who reads it hangs. HANG_LIBRARY
 * makes its libjvm.so.
 */
#ifdef HANG_LIBRARY
#define TABLE(array, entry) unsigned long array = 0, entry##ArrayStride = 64
#define COLUMN(name, offset) unsigned long name##Offset = offset
TABLE(gHotSpotVMStructs, gHotSpotVMStructEntry);
COLUMN(gHotSpotVMStructEntryTypeName, 0);
COLUMN(gHotSpotVMStructEntryFieldName, 8);
COLUMN(gHotSpotVMStructEntryTypeString, 16);
COLUMN(gHotSpotVMStructEntryIsStatic, 24);
COLUMN(gHotSpotVMStructEntryOffset, 32);
COLUMN(gHotSpotVMStructEntryAddress, 40);
TABLE(gHotSpotVMTypes, gHotSpotVMTypeEntry);
COLUMN(gHotSpotVMTypeEntryTypeName, 0);
COLUMN(gHotSpotVMTypeEntrySize, 8);
TABLE(gHotSpotVMIntConstants, gHotSpotVMIntConstantEntry);
COLUMN(gHotSpotVMIntConstantEntryName, 0);
COLUMN(gHotSpotVMIntConstantEntryValue, 8);
TABLE(gHotSpotVMLongConstants, gHotSpotVMLongConstantEntry);
COLUMN(gHotSpotVMLongConstantEntryName, 0);
COLUMN(gHotSpotVMLongConstantEntryValue, 8);

void use(unsigned long page)
{
	gHotSpotVMStructs = gHotSpotVMTypes = gHotSpotVMIntConstants = gHotSpotVMLongConstants = page;
}
#else
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void use(unsigned long page);

/* The argument is the user that it becomes. */
int main(int argc, char **argv)
{
	int uid = atoi(argv[1]);
	unsigned long page;
	volatile unsigned work = 0;
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register r = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	long fd;

	page = (unsigned long)mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	r.range.start = page;
	r.range.len = 1 << 20;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &r)) {
		perror("userfaultfd");
		return 1;
	}
	use(page);
	if (uid && (setgid(uid) || setuid(uid))) {
		perror("setuid");
		return 1;
	}
	putchar('\n');
	fflush(stdout);
	for (;;) { /* enough to be sampled */
		for (int i = 0; i < 100000; i++)
			work += i;
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, 0);
	}
}
#endif
