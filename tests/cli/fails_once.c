/* fails_once.c: preloaded into an added command's `neap run`: the Nth call that writes to the state fails, once, as
 * on a full disk. NEAP_TEST_FAILS_ONCE="NUMBER:FILE"; FILE is created when the call has failed. With NUMBER 0 each
 * call that writes to a run's folder fails while FILE exists. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define VISIBLE    __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool is_run(void)
{
	char line[64] = "";
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t length = read(fd, line, sizeof line - 1);
	close(fd);
	return length > 0 && !strcmp(line + strlen(line) + 1, "run");
}

static bool fails(const char *path)
{
	static atomic_ulong calls;
	const char *text = getenv("NEAP_TEST_FAILS_ONCE"), *state = getenv("XDG_STATE_HOME");
	char *file = NULL;
	unsigned long number = text ? strtoul(text, &file, 10) : 0;
	if (!text || *file != ':' || !state || strncmp(path, state, strlen(state)) != 0 || !is_run())
		return false;
	if (!number) {
		bool fails = strstr(path, "/runs/") && !access(file + 1, F_OK);
		errno = ENOSPC;
		return fails;
	}
	if (atomic_fetch_add(&calls, 1) + 1 != number)
		return false;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, file + 1, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	close(fd);
	errno = ENOSPC;
	return true;
}

static bool fd_fails(int fd)
{
	char link[64], path[PATH_MAX] = "";
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof path - 1) > 0 && fails(path);
}

VISIBLE ssize_t write(int fd, const void *bytes, size_t length)
{
	return fd_fails(fd) ? -1 : REAL(write)(fd, bytes, length);
}

VISIBLE ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
	return fd_fails(fd) ? -1 : REAL(pwrite)(fd, bytes, length, at);
}

VISIBLE int fsync(int fd) { return fd_fails(fd) ? -1 : REAL(fsync)(fd); }

VISIBLE int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	if (flags & O_CREAT && fails(path))
		return -1;
	return REAL(open)(path, flags, mode);
}
