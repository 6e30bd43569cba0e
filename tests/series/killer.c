/* killer.c: LD_PRELOADed into `neap series`, kills it at a chosen journal write, or simulates a full disk.
 *
 *   NEAP_KILLER=MODE:N:BYTES     at the Nth journal write (fork: at the Nth fork) of this process
 *
 *   before   nothing of the record is written        synced   written and on disk, nothing done about it yet
 *   torn     its first BYTES bytes are               fork     a supervisor has just been started
 *   written  all of it, but not flushed              full     its first BYTES bytes are, then and from then on ENOSPC
 *
 * linger: if there is no file "begin", makes a file "lingers" and waits before main, with default signals. abort: if
 * there is no file "begin", ends itself by SIGKILL before main.
 *
 * nolocks: files named "lock" behave as on a file system without locks. ended: ends itself by SIGKILL when a file
 * named "ended" is in place.
 *
 * A write counts when its descriptor's name ends in "/journal"; a fork when its process has written a journal before.
 * So supervisors and commands, which inherit the environment, are never touched.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static unsigned long writes, forks;
static bool full;

static void die(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static bool is_named(int fd, const char *end)
{
	char link[64], name[4096];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, name, sizeof name), own = (ssize_t)strlen(end);
	return length > own && !memcmp(name + length - own, end, (size_t)own);
}

static bool is_journal(int fd) { return is_named(fd, "/journal"); }

static bool asked(const char *mode, unsigned long now, size_t *ret_bytes)
{
	const char *order = getenv("NEAP_KILLER");
	size_t length = strlen(mode);
	char *end;
	if (!order || strncmp(order, mode, length) || order[length] != ':')
		return false;
	if (strtoul(order + length + 1, &end, 10) != now || *end != ':')
		return false;
	*ret_bytes = strtoul(end + 1, NULL, 10);
	return true;
}

__attribute__((constructor)) static void linger(void)
{
	size_t cut;
	if (access("begin", F_OK) == 0)
		return;
	if (asked("abort", 0, &cut))
		die();
	if (!asked("linger", 0, &cut))
		return;
	FILE *file = fopen("lingers", "w");
	if (!file || fputs("x", file) < 0 || fclose(file))
		abort();
	for (;;)
		pause();
}

EXPORT ssize_t write(int fd, const void *bytes, size_t length)
{
	ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	size_t cut = 0;
	if (!is_journal(fd))
		return real(fd, bytes, length);
	if (full) {
		errno = ENOSPC;
		return -1;
	}
	writes++;
	if (asked("before", writes, &cut))
		die();
	if (asked("torn", writes, &cut)) {
		real(fd, bytes, 1 + cut % (length - 1));
		die();
	}
	if (asked("full", writes, &cut)) {
		full = true;
		return real(fd, bytes, 1 + cut % (length - 1));
	}
	ssize_t wrote = real(fd, bytes, length);
	if (asked("written", writes, &cut))
		die();
	return wrote;
}

EXPORT int fdatasync(int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	size_t cut;
	int failed = real(fd);
	if (is_journal(fd) && asked("synced", writes, &cut))
		die();
	return failed;
}

EXPORT int flock(int fd, int operation)
{
	int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
	size_t cut;
	if (!asked("nolocks", 0, &cut) || !is_named(fd, "/lock"))
		return real(fd, operation);
	errno = ENOLCK;
	return -1;
}

EXPORT int fcntl(int fd, int command, ...) /* fcntl64, where files are large */
{
	int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	size_t cut;
	va_list list;
	va_start(list, command);
	void *argument = va_arg(list, void *);
	va_end(list);
	if ((command != F_SETLK && command != F_GETLK) || !asked("nolocks", 0, &cut) || !is_named(fd, "/lock"))
		return real(fd, command, argument);
	errno = ENOSYS;
	return -1;
}

EXPORT int rename(const char *from, const char *to)
{
	int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
	size_t cut, length = strlen(to);
	int failed = real(from, to);
	if (length > 6 && !strcmp(to + length - 6, "/ended") && asked("ended", 0, &cut))
		die();
	return failed;
}

EXPORT pid_t fork(void)
{
	pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
	size_t cut;
	pid_t child = real();
	if (child > 0 && writes && asked("fork", ++forks, &cut))
		die();
	return child;
}
