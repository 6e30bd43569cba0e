/* sim/libraries/nccl/fail.c: see the header. */
#include "sim/libraries/nccl/fail.h"

#include "sim/libraries/nccl/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static struct {
	pthread_mutex_t lock;
	char text[1024];
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void) { pthread_mutex_lock(&last.lock); }
static void after_fork(void) { pthread_mutex_unlock(&last.lock); }

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* NCCL prints why a call failed if the user asks for it. */
static bool wants_warnings(void)
{
	const char *level = getenv("NCCL_DEBUG");

	return level &&
	       (strcasecmp(level, "WARN") == 0 || strcasecmp(level, "INFO") == 0 || strcasecmp(level, "TRACE") == 0);
}

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	pthread_mutex_lock(&last.lock);
	vsnprintf(last.text, sizeof last.text, format, arguments);
	if (wants_warnings()) {
		printf("neap: NCCL WARN %s\n", last.text);
		fflush(stdout);
	}
	pthread_mutex_unlock(&last.lock);
	va_end(arguments);
	return result;
}

ncclResult_t nccl_refuse(const char *function)
{
	if (nccl_services())
		nccl_services()->tally(GAP_REFUSED, NCCL_LIBRARY, function, 0, 0);
	return nccl_group_failed(nccl_fail(ncclInvalidUsage, "%s is not simulated", function));
}

const char *nccl_last_error(void)
{
	static _Thread_local char copy[sizeof last.text];

	pthread_mutex_lock(&last.lock);
	memcpy(copy, last.text, sizeof copy);
	pthread_mutex_unlock(&last.lock);
	return copy;
}
