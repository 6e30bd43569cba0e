/* base/clock.c: the system's clocks behind struct neap_clock. */
#include "base/clock.h"

static struct timespec from_ns(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NEAP_NS_PER_S), .tv_nsec = (long)(ns % NEAP_NS_PER_S)};
}

static uint64_t read_clock(clockid_t id)
{
	struct timespec time = {0};

	clock_gettime(id, &time);
	return (uint64_t)time.tv_sec * NEAP_NS_PER_S + (uint64_t)time.tv_nsec;
}

static uint64_t system_now(void *context)
{
	(void)context;
	return read_clock(CLOCK_MONOTONIC);
}

static void system_sleep(void *context, uint64_t ns)
{
	struct timespec time = from_ns(ns);

	(void)context;
	nanosleep(&time, NULL); /* a signal may end it early, so callers read the clock again */
}

const struct neap_clock *neap_clock_system(void)
{
	static const struct neap_clock clock = {.now = system_now, .sleep = system_sleep};

	return &clock;
}

uint64_t neap_deadline_left_ns(const struct neap_deadline *deadline)
{
	uint64_t now_ns = deadline->clock ? neap_clock_now(deadline->clock) : 0;

	if (!deadline->clock)
		return UINT64_MAX;
	return now_ns < deadline->ns ? deadline->ns - now_ns : 0;
}

int neap_deadline_poll_ms(const struct neap_deadline *deadline)
{
	const uint64_t most_ns = 60 * NEAP_NS_PER_S;
	uint64_t left_ns = neap_deadline_left_ns(deadline);

	return (int)(((left_ns < most_ns ? left_ns : most_ns) + NEAP_NS_PER_MS - 1) / NEAP_NS_PER_MS);
}

uint64_t neap_wall_ns(void) { return read_clock(CLOCK_REALTIME); }
uint64_t neap_boot_ns(void) { return read_clock(CLOCK_BOOTTIME); }

struct timespec neap_clock_after(uint64_t ns) { return from_ns(read_clock(CLOCK_MONOTONIC) + ns); }
