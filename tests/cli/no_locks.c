/* no_locks.c: preloaded. Files whose path contains NEAP_TEST_NO_LOCKS behave as on a file system without locks. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) int flock(int fd, int operation);

int flock(int fd, int operation)
{
	int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
	const char *without = getenv("NEAP_TEST_NO_LOCKS");
	char link[64], path[PATH_MAX] = "";
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, sizeof path - 1);
	if (!without || length < 0 || !strstr(path, without))
		return real(fd, operation);
	errno = ENOLCK;
	return -1;
}
