/* base/clock.h: time as a parameter, so that a test can hold it. */
#ifndef NEAP_BASE_CLOCK_H
#define NEAP_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

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

/* An instant by which something must be done. Zeroed: there is none. */
struct neap_deadline {
	const struct neap_clock *clock; /* NULL: there is none */
	uint64_t ns;
};

static inline struct neap_deadline neap_deadline_in(const struct neap_clock *clock, uint64_t ns)
{
	return (struct neap_deadline){clock, neap_clock_now(clock) + ns};
}

static inline bool neap_deadline_over(const struct neap_deadline *deadline)
{
	return deadline->clock && neap_clock_now(deadline->clock) >= deadline->ns;
}

/* Nanoseconds since 1970 (CLOCK_REALTIME), for files and reports only. */
uint64_t neap_wall_ns(void);

#define NEAP_NS_PER_MS 1000000ull
#define NEAP_NS_PER_S  1000000000ull

#endif
