/* See the header. Each call is defined under its symbol in the C library (programs with 64-bit file offsets call the
 * ...64 ones), asks whether it may proceed, and goes on to the next definition. */
#include "failing_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct failing_calls failing_calls;
static unsigned long noted[4096]; /* the calls other than write(2), as many as there is room for */
static size_t noted_count;

/* Whether the next call fails. May not return at all. */
static bool fails(bool writes, bool is_write)
{
	if (!failing_calls.armed || (failing_calls.writing_only && !writes))
		return false;
	unsigned long number = __atomic_add_fetch(&failing_calls.asked, 1, __ATOMIC_RELAXED);
	if (failing_calls.writing_only && !is_write && noted_count < sizeof noted / sizeof *noted)
		noted[noted_count++] = number;
	if (number == failing_calls.kill_at)
		kill(getpid(), SIGKILL);
	if (number != failing_calls.fail_at)
		return false;
	errno = failing_calls.error;
	return true;
}

/* Always true: it stands in the place of a call's WRITES. */
static bool meanwhile(void)
{
	void (*others)(void) = failing_calls.meanwhile;

	failing_calls.meanwhile = NULL;
	if (others)
		others();
	return true;
}

static bool in_proc(int fd)
{
	struct statfs info;

	return fd >= 0 && fstatfs(fd, &info) == 0 && info.f_type == 0x9fa0;
}

/* CALL(SYMBOL, IDENTIFIER, TYPE, WHAT IT GIVES WHEN IT FAILS, WRITES, (PARAMETERS), (ARGUMENTS)) */
#define CALL(symbol, identifier, type, failure, writes, parameters, arguments)                                       \
	EXPORT type identifier parameters __asm__(symbol);                                                           \
	EXPORT type identifier parameters                                                                            \
	{                                                                                                            \
		static type(*next) parameters;                                                                       \
		if (!next)                                                                                           \
			*(void **)&next = dlsym(RTLD_NEXT, symbol);                                                  \
		return fails(writes, !strcmp(symbol, "write")) ? (failure) : next arguments;                         \
	}

CALL("mkdirat", call_mkdirat, int, -1, true, (int fd, const char *name, mode_t mode), (fd, name, mode))
CALL("rename", call_rename, int, -1, true, (const char *from, const char *to), (from, to))
CALL("renameat", call_renameat, int, -1, meanwhile(), (int a, const char *from, int b, const char *to),
     (a, from, b, to))
CALL("linkat", call_linkat, int, -1, meanwhile(), (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags))
CALL("renameat2", call_renameat2, int, -1, true, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, failing_calls.plain_renames ? ~0u : flags)) /* flags that no kernel knows: EINVAL */
CALL("unlinkat", call_unlinkat, int, -1, true, (int fd, const char *name, int flags), (fd, name, flags))
CALL("unlink", call_unlink, int, -1, true, (const char *name), (name))
CALL("syncfs", call_syncfs, int, -1, true, (int fd), (fd))
CALL("write", call_write, ssize_t, -1, true, (int fd, const void *bytes, size_t length), (fd, bytes, length))
CALL("fstat", call_fstat, int, -1, false, (int fd, void *info), (fd, info))
CALL("fstat64", call_fstat64, int, -1, false, (int fd, void *info), (fd, info))
CALL("fstatat", call_fstatat, int, -1, false, (int fd, const char *name, void *info, int flags),
     (fd, name, info, flags))
CALL("fstatat64", call_fstatat64, int, -1, false, (int fd, const char *name, void *info, int flags),
     (fd, name, info, flags))
CALL("fdopendir", call_fdopendir, DIR *, NULL, false, (int fd), (fd))

EXPORT int call_flock(int fd, int operation) __asm__("flock");
EXPORT int call_flock(int fd, int operation)
{
	static int (*next)(int, int);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "flock");
	if (fails(true, false))
		return -1;
	errno = ENOLCK;
	return failing_calls.no_locks ? -1 : next(fd, operation);
}

EXPORT int call_fsync(int fd) __asm__("fsync");
EXPORT int call_fsync(int fd)
{
	static int (*next)(int);
	struct statx info;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "fsync");
	bool failing = fails(true, false);
	if (failing_calls.armed && !failing_calls.flushed_at && !statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info)) {
		failing_calls.flushed_at = failing_calls.asked;
		failing_calls.flushed_inode = info.stx_ino;
	}
	return failing ? -1 : next(fd);
}

/* Only errno tells an error from the end. */
#define READDIR(symbol, identifier)                                                                                  \
	EXPORT void *identifier(DIR *folder) __asm__(symbol);                                                        \
	EXPORT void *identifier(DIR *folder)                                                                         \
	{                                                                                                            \
		static void *(*next)(DIR *);                                                                         \
		if (!next)                                                                                           \
			*(void **)&next = dlsym(RTLD_NEXT, symbol);                                                  \
		return !in_proc(dirfd(folder)) && fails(false, false) ? NULL : next(folder);                         \
	}

READDIR("readdir", call_readdir)
READDIR("readdir64", call_readdir64)

#define OPEN(symbol, identifier)                                                                                     \
	EXPORT int identifier(const char *path, int flags, ...) __asm__(symbol);                                     \
	EXPORT int identifier(const char *path, int flags, ...)                                                      \
	{                                                                                                            \
		static int (*next)(const char *, int, ...);                                                          \
		va_list args;                                                                                        \
		va_start(args, flags);                                                                               \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                              \
		va_end(args);                                                                                        \
		if (!next)                                                                                           \
			*(void **)&next = dlsym(RTLD_NEXT, symbol);                                                  \
		bool proc = !strncmp(path, "/proc/", 6);                                                             \
		return !proc && fails((flags & O_ACCMODE) != O_RDONLY, false) ? -1 : next(path, flags, mode);        \
	}

OPEN("open", call_open)
OPEN("open64", call_open64)

#define OPENAT(symbol, identifier)                                                                                   \
	EXPORT int identifier(int fd, const char *path, int flags, ...) __asm__(symbol);                             \
	EXPORT int identifier(int fd, const char *path, int flags, ...)                                              \
	{                                                                                                            \
		static int (*next)(int, const char *, int, ...);                                                     \
		va_list args;                                                                                        \
		va_start(args, flags);                                                                               \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                              \
		va_end(args);                                                                                        \
		if (!next)                                                                                           \
			*(void **)&next = dlsym(RTLD_NEXT, symbol);                                                  \
		return fails((flags & O_ACCMODE) != O_RDONLY, false) ? -1 : next(fd, path, flags, mode);             \
	}

OPENAT("openat", call_openat)
OPENAT("openat64", call_openat64)

EXPORT DIR *call_opendir(const char *path) __asm__("opendir");
EXPORT DIR *call_opendir(const char *path)
{
	static DIR *(*next)(const char *);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "opendir");
	return next(failing_calls.proc && !strcmp(path, "/proc") ? failing_calls.proc : path);
}

__attribute__((constructor)) static void begin(void)
{
	const char *number = getenv("FAILING_CALLS_KILL");

	if (!number && !getenv("FAILING_CALLS_COUNT"))
		return;
	failing_calls.kill_at = number ? strtoul(number, NULL, 10) : 0;
	failing_calls.writing_only = true;
	failing_calls.armed = true;
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("FAILING_CALLS_COUNT");

	failing_calls.armed = false;
	FILE *file = path ? fopen(path, "w") : NULL;
	if (!file)
		return;
	fprintf(file, "%lu\n", failing_calls.asked);
	for (size_t i = 0; i < noted_count; i++)
		fprintf(file, "%lu\n", noted[i]);
	fclose(file);
}
