/* failing_calls.c: preloaded into `neap estimate`, makes one system call fail of those with which its forked
 * processes isolate a run: call number FAILING_CALL (from 1), with EPERM; with FAILING_CALL_ON also every later call.
 * FAILING_CALL_COUNT is a file for the number of calls. The programs that these processes exec are left alone. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static long *count; /* shared with forked processes; NULL: not our process */
static pid_t first;
static long fails_at;
static int fails_on;

__attribute__((constructor)) static void begin(void)
{
	char line[4096] = "";
	const char *number = getenv("FAILING_CALL");
	FILE *file = fopen("/proc/self/cmdline", "re");
	if (!file || fread(line, 1, sizeof line - 1, file) == 0 || !number)
		return;
	fclose(file);
	if (strcmp(line + strlen(line) + 1, "estimate") != 0)
		return;
	fails_at = atol(number);
	fails_on = getenv("FAILING_CALL_ON") != NULL;
	first = getpid();
	count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("FAILING_CALL_COUNT");
	long *counted = count;
	if (!counted || getpid() != first || !path)
		return;
	count = NULL;
	FILE *file = fopen(path, "w");
	if (file) {
		fprintf(file, "%ld\n", *counted);
		fclose(file);
	}
}

static int fails(void)
{
	if (!count || getpid() == first)
		return 0;
	long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
	if (number != fails_at && !(fails_on && number > fails_at))
		return 0;
	errno = EPERM;
	return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define EXPORT     __attribute__((visibility("default")))

EXPORT int unshare(int flags) { return fails() ? -1 : REAL(unshare)(flags); }
EXPORT int mount(const char *a, const char *b, const char *c, unsigned long d, const void *e)
{
	return fails() ? -1 : REAL(mount)(a, b, c, d, e);
}
EXPORT int umount2(const char *a, int b) { return fails() ? -1 : REAL(umount2)(a, b); }
EXPORT int chroot(const char *a) { return fails() ? -1 : REAL(chroot)(a); }
EXPORT int chdir(const char *a) { return fails() ? -1 : REAL(chdir)(a); }
EXPORT int mkdirat(int a, const char *b, mode_t c) { return fails() ? -1 : REAL(mkdirat)(a, b, c); }
EXPORT int fchmod(int a, mode_t b) { return fails() ? -1 : REAL(fchmod)(a, b); }
EXPORT int fchmodat(int a, const char *b, mode_t c, int d) { return fails() ? -1 : REAL(fchmodat)(a, b, c, d); }
EXPORT int fchown(int a, uid_t b, gid_t c) { return fails() ? -1 : REAL(fchown)(a, b, c); }
EXPORT int fsetxattr(int a, const char *b, const void *c, size_t d, int e)
{
	return fails() ? -1 : REAL(fsetxattr)(a, b, c, d, e);
}
EXPORT int socket(int a, int b, int c) { return fails() ? -1 : REAL(socket)(a, b, c); }
EXPORT int dup2(int a, int b) { return fails() ? -1 : REAL(dup2)(a, b); }
EXPORT int setenv(const char *a, const char *b, int c) { return fails() ? -1 : REAL(setenv)(a, b, c); }
EXPORT pid_t fork(void) { return fails() ? -1 : REAL(fork)(); }
EXPORT int access(const char *a, int b) { return fails() ? -1 : REAL(access)(a, b); }
EXPORT char *getcwd(char *a, size_t b) { return fails() ? NULL : REAL(getcwd)(a, b); }
EXPORT char *realpath(const char *a, char *b) { return fails() ? NULL : REAL(realpath)(a, b); }
EXPORT ssize_t readlink(const char *a, char *b, size_t c) { return fails() ? -1 : REAL(readlink)(a, b, c); }
EXPORT int stat64(const char *a, struct stat64 *b) { return fails() ? -1 : REAL(stat64)(a, b); }
EXPORT int statvfs64(const char *a, struct statvfs64 *b) { return fails() ? -1 : REAL(statvfs64)(a, b); }
EXPORT ssize_t write(int a, const void *b, size_t c) { return fails() ? -1 : REAL(write)(a, b, c); }

static int open_with(const char *name, const char *path, int flags, mode_t mode)
{
	int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
	return fails() ? -1 : real(path, flags, mode);
}
#define OPEN(name)                                                                                                   \
	EXPORT int name##_fails(const char *path, int flags, ...) __asm__(#name);                                    \
	int name##_fails(const char *path, int flags, ...)                                                           \
	{                                                                                                            \
		va_list list;                                                                                        \
		va_start(list, flags);                                                                               \
		mode_t mode = va_arg(list, mode_t);                                                                  \
		va_end(list);                                                                                        \
		return open_with(#name, path, flags, mode);                                                          \
	}
OPEN(open)
OPEN(open64)

EXPORT int prctl(int option, ...)
{
	va_list list;
	va_start(list, option);
	unsigned long a = va_arg(list, unsigned long), b = va_arg(list, unsigned long),
		      c = va_arg(list, unsigned long), d = va_arg(list, unsigned long);
	va_end(list);
	return fails() ? -1 : REAL(prctl)(option, a, b, c, d);
}

EXPORT long syscall(long number, ...)
{
	va_list list;
	va_start(list, number);
	long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long),
	     e = va_arg(list, long), f = va_arg(list, long);
	va_end(list);
	return fails() ? -1 : REAL(syscall)(number, a, b, c, d, e, f);
}
