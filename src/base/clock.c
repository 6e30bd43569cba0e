/* base/clock.c: the system's clocks behind struct neap_clock. */
#include "base/clock.h"

#include <time.h>

static uint64_t to_ns(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * NEAP_NS_PER_S + (uint64_t)time->tv_nsec;
}

static uint64_t system_now(void *context)
{
	struct timespec time = {0};

	(void)context;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return to_ns(&time);
}

static void system_sleep(void *context, uint64_t ns)
{
	struct timespec time = {.tv_sec = (time_t)(ns / NEAP_NS_PER_S), .tv_nsec = (long)(ns % NEAP_NS_PER_S)};

	(void)context;
	nanosleep(&time, NULL); /* a signal may end it early: callers look at the clock again */
}

const struct neap_clock *neap_clock_system(void)
{
	static const struct neap_clock clock = {.now = system_now, .sleep = system_sleep};

	return &clock;
}

uint64_t neap_wall_ns(void)
{
	struct timespec time = {0};

	clock_gettime(CLOCK_REALTIME, &time);
	return to_ns(&time);
}
