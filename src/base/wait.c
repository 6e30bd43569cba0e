/* base/wait.c: see wait.h. */
#include "base/wait.h"

#include <errno.h>

bool neap_is_past(const struct timespec *until)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

#ifdef __SANITIZE_THREAD__ /* gcc 12's does not know the functions that take a clock: it would see no lock */

static bool waits(int result, const struct timespec *until)
{
	const struct timespec pause = {.tv_nsec = 100000};

	return result == EBUSY && !neap_is_past(until) && (nanosleep(&pause, NULL), true);
}

int neap_lock_until(pthread_mutex_t *mutex, const struct timespec *until)
{
	int result;

	while (waits(result = pthread_mutex_trylock(mutex), until))
		;
	return result == EBUSY ? ETIMEDOUT : result;
}

int neap_join_until(pthread_t thread, const struct timespec *until)
{
	int result;

	while (waits(result = pthread_tryjoin_np(thread, NULL), until))
		;
	return result == EBUSY ? ETIMEDOUT : result;
}

#else

int neap_lock_until(pthread_mutex_t *mutex, const struct timespec *until)
{
	return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, until);
}

int neap_join_until(pthread_t thread, const struct timespec *until)
{
	return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, until);
}

#endif
