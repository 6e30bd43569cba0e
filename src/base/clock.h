/* base/clock.h: time as a parameter, so that a test can hold it. */
#ifndef NEAP_BASE_CLOCK_H
#define NEAP_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A source of time. `now` never goes back. `sleep` returns after at least `ns`, or earlier on a signal. */
struct neap_clock {
	uint64_t (*now)(void *context);
	void (*sleep)(void *context, uint64_t ns);
	void *context;
};

/* CLOCK_MONOTONIC and nanosleep. Static storage, any thread. */
const struct neap_clock *neap_clock_system(void);

static inline uint64_t neap_clock_now(const struct neap_clock *clock) { return clock->now(clock->context); }
static inline void neap_clock_sleep(const struct neap_clock *clock, uint64_t ns) { clock->sleep(clock->context, ns); }

#define NEAP_NS_PER_MS 1000000ull
#define NEAP_NS_PER_S  1000000000ull

/* An instant by which something must be done. The caller of a function that waits creates it. Zeroed: no deadline. */
struct neap_deadline {
	const struct neap_clock *clock; /* NULL: no deadline */
	uint64_t ns;
};

/* A deadline too far away for 64 bits becomes UINT64_MAX. */
static inline struct neap_deadline neap_deadline_in(const struct neap_clock *clock, uint64_t ns)
{
	uint64_t now_ns = neap_clock_now(clock);

	return (struct neap_deadline){clock, ns < UINT64_MAX - now_ns ? now_ns + ns : UINT64_MAX};
}

static inline struct neap_deadline neap_deadline_in_ms(const struct neap_clock *clock, uint64_t ms)
{
	return neap_deadline_in(clock, ms < UINT64_MAX / NEAP_NS_PER_MS ? ms * NEAP_NS_PER_MS : UINT64_MAX);
}

static inline bool neap_deadline_over(const struct neap_deadline *deadline)
{
	return deadline->clock && neap_clock_now(deadline->clock) >= deadline->ns;
}

/* Returns the time left; UINT64_MAX: no deadline. */
uint64_t neap_deadline_left_ns(const struct neap_deadline *deadline);

/* Returns a timeout for poll(): the milliseconds left, rounded up, at most a minute. So the caller calls poll() in a
 * loop. */
int neap_deadline_poll_ms(const struct neap_deadline *deadline);

/* CLOCK_MONOTONIC at the kernel's last tick, 1 to 10 ms ago: eight times faster than the exact clock. */
static inline uint64_t neap_clock_tick_ns(void)
{
	struct timespec time = {0};

	clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
	return (uint64_t)time.tv_sec * NEAP_NS_PER_S + (uint64_t)time.tv_nsec;
}

/* Nanoseconds since 1970 (CLOCK_REALTIME), for files and reports only. */
uint64_t neap_wall_ns(void);

/* Nanoseconds since the machine started (CLOCK_BOOTTIME). /proc counts a process's start time from there, too. */
uint64_t neap_boot_ns(void);

/* Returns the instant `ns` from now, by CLOCK_MONOTONIC: for timed waits (base/wait.h). */
struct timespec neap_clock_after(uint64_t ns);

#endif
