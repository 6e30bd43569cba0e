/* Preloaded into a program: fails host allocations. The process that FAILING_MALLOC names fails its Nth allocation
 * (from 1), counted from the loading of its libraries; with FAILING_MALLOC_FOR_GOOD also every later one.
 * FAILING_MALLOC_COUNT names a file that gets the number of allocations at the end.
 *
 * Built to be initialised first (-z initfirst), so that what libraries allocate as they are loaded is counted too.
 * Under the address sanitizer the next malloc is the sanitizer's: it still sees every leak.
 *
 * Two callers get all they ask for, because they end the program where they do not: the name service of the C library
 * (getpwuid_r: an assertion in nss_database.c, up to 2.36 at least), and the address sanitizer, which asks for the
 * stack of each thread as it starts (pthread_getattr_np).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t bytes);
EXPORT void *calloc(size_t count, size_t bytes);
EXPORT void *realloc(void *memory, size_t bytes);
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes);
EXPORT int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **ret_found);

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);

static atomic_ulong asked;
static unsigned long failing; /* 0: none */
static bool for_good, main_only, active;
static char count_path[512];
static _Thread_local bool exempt;

/* dlsym may ask for memory before the next calloc is known. */
static char early[4096] __attribute__((aligned(16)));
static size_t early_used;

static void *early_calloc(size_t bytes)
{
	size_t at = early_used;

	bytes = (bytes + 15) & ~(size_t)15;
	if (bytes > sizeof early - at)
		return NULL;
	early_used = at + bytes;
	return early + at;
}

static void find_next(void)
{
	static bool finding;

	if (finding)
		return;
	finding = true;
	*(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
	*(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
	*(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
}

/* The C library is not initialised yet, so getenv does not work. */
static const char *variable(char **environment, const char *name)
{
	size_t length = strlen(name);

	for (; *environment; environment++)
		if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

__attribute__((constructor)) static void begin(int argc, char **argv, char **environment)
{
	const char *number = variable(environment, "FAILING_MALLOC");
	const char *path = variable(environment, "FAILING_MALLOC_COUNT");

	(void)argc;
	(void)argv;
	find_next();
	for (; number && *number >= '0' && *number <= '9'; number++)
		failing = failing * 10 + (unsigned long)(*number - '0');
	for_good = variable(environment, "FAILING_MALLOC_FOR_GOOD") != NULL;
	main_only = variable(environment, "FAILING_MALLOC_MAIN_THREAD") != NULL;
	if (path && strlen(path) < sizeof count_path)
		strcpy(count_path, path);
	active = true;
}

__attribute__((destructor)) static void end(void)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%lu\n", atomic_load(&asked));
	int fd = count_path[0] ? open(count_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	if (write(fd, text, (size_t)length) != length)
		abort();
	close(fd);
}

static bool refuse(void)
{
	unsigned long number;

	if (!active || exempt || (main_only && gettid() != getpid()))
		return false;
	number = atomic_fetch_add(&asked, 1) + 1;
	if (!failing || number < failing || (number > failing && !for_good))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t bytes)
{
	if (!next_malloc)
		find_next();
	if (!next_malloc)
		return early_calloc(bytes);
	return refuse() ? NULL : next_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	size_t all;

	if (!next_calloc)
		find_next();
	if (!next_calloc)
		return __builtin_mul_overflow(count, bytes, &all) ? NULL : early_calloc(all);
	return refuse() ? NULL : next_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	if (!next_realloc)
		find_next();
	return refuse() ? NULL : next_realloc(memory, bytes);
}

int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **ret_found)
{
	static int (*next)(uid_t, struct passwd *, char *, size_t, struct passwd **);

	*(void **)&next = dlsym(RTLD_NEXT, "getpwuid_r");
	exempt = true;
	int answer = next(uid, entry, buffer, size, ret_found);
	exempt = false;
	return answer;
}

int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
	static int (*next)(pthread_t, pthread_attr_t *);

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_getattr_np");
	exempt = true;
	int answer = next(thread, attributes);
	exempt = false;
	return answer;
}
